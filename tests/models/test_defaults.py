"""The values families assume for omitted keys are those of the transformers config classes."""

import pytest

from decodebench.models.registry import FAMILIES

# Ours where the class derives the value, or where vLLM reads the key with a default of its own.
DERIVED = {
    "Gemma 2": {"sliding_window_pattern"},
    "Gemma 3": {"sliding_window_pattern"},
    "Gemma 4": {"global_head_dim"},
    "DeepSeek-V3.2/GLM-5": {"index_topk_freq", "index_skip_topk_offset"},
    "Granite 4 hybrid": {"mamba_d_head"},
    "Falcon-H1": {"mamba_d_head"},
    "Qwen3-Next": {"full_attention_interval"},
    "Qwen3.5": {"full_attention_interval", "num_key_value_heads"},
}
CONFIG_CLASS = {
    "Gemma 3": "gemma3_text",
    "Gemma 4": "gemma4_text",
    "Llama 4": "llama4_text",
    "Qwen3.5": "qwen3_5_moe_text",
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_defaults_equal_those_of_the_config_class(family) -> None:  # type: ignore[no-untyped-def]
    mapping = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    model_type = CONFIG_CLASS.get(family.name, family.model_types[0])
    if model_type not in mapping:
        pytest.skip(f"transformers has no {model_type}")
    theirs = mapping[model_type]()
    for key, value in family.defaults.items():
        if key in DERIVED.get(family.name, ()):
            continue
        got = (
            theirs.per_layer_config[0].head_dim
            if (family.name, key) == ("Gemma 4", "head_dim")
            else getattr(theirs, key)
        )
        assert got == value, key
