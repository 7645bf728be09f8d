"""What is not known is refused by name: architectures, layer types, combinations. Never a dense guess."""

import pytest

from decodebench.models import ConfigError, UnknownModelError
from decodebench.models.registry import BY_ARCHITECTURE, BY_MODEL_TYPE, FAMILIES
from tests.models.configs import DEEPSEEK, DEEPSEEK_V4, LLAMA, NEMOTRON_H, QWEN3_NEXT, ZAMBA2, specs_of


def test_an_unknown_architecture_is_named_even_if_its_model_type_is_known() -> None:
    with pytest.raises(
        UnknownModelError, match=r"config.json: architecture 'RetNetForCausalLM' is not known"
    ):
        specs_of({**LLAMA, "architectures": ["RetNetForCausalLM"]})


def test_an_unknown_model_type_is_named_where_no_architecture_is_given() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}
    assert specs_of(config).family == "Llama"
    with pytest.raises(UnknownModelError, match="model_type 'retnet' is not known"):
        specs_of({**config, "model_type": "retnet"})


def test_a_config_that_names_no_model_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="neither architectures nor model_type"):
        specs_of({"hidden_size": 1024})


def test_a_wrapper_takes_the_language_model_of_its_text_config_and_refuses_an_unknown_one() -> None:
    wrapper = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": LLAMA,
    }
    specs = specs_of(wrapper)
    assert specs.family == "Llama"
    assert "language_model.model.layers.0.self_attn.attn" in specs.layers
    with pytest.raises(UnknownModelError, match="model_type 'retnet'"):
        specs_of({**wrapper, "text_config": {**LLAMA, "model_type": "retnet"}})


UNKNOWN_LAYERS = [
    ({**LLAMA, "layer_types": ["full_attention"] * 7 + ["ring_attention"]}, 7, "ring_attention"),
    ({**QWEN3_NEXT, "layer_types": ["linear_attention", "hyena", *["full_attention"] * 6]}, 1, "hyena"),
    ({**NEMOTRON_H, "hybrid_override_pattern": "M-M*MX"}, 5, "X"),
    ({**ZAMBA2, "layers_block_type": ["mamba", "hybrid", "gru", "hybrid"]}, 2, "gru"),
    ({**DEEPSEEK_V4, "compress_ratios": [0, 4, 16, 4]}, 2, "compress ratio 16"),
]


@pytest.mark.parametrize(
    ("config", "index", "kind"), UNKNOWN_LAYERS, ids=[str(case[2]) for case in UNKNOWN_LAYERS]
)
def test_an_unknown_layer_type_is_named_with_its_layer(
    config: dict[str, object], index: int, kind: str
) -> None:
    with pytest.raises(UnknownModelError, match=f"config.json: layer {index} has type '{kind}'"):
        specs_of(config)


def test_a_deepseek_config_that_would_not_run_as_mla_is_refused() -> None:
    config = {key: value for key, value in DEEPSEEK.items() if key != "kv_lora_rank"}
    with pytest.raises(UnknownModelError, match="kv_lora_rank is missing"):
        specs_of(config)


def test_a_window_on_some_qwen_layers_is_refused_as_the_engine_does() -> None:
    config = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    sliding = {"use_sliding_window": True, "sliding_window": 128}
    with pytest.raises(UnknownModelError, match="4 of 8 layers slide"):
        specs_of({**config, **sliding, "max_window_layers": 4})
    assert {s.kind for s in specs_of({**config, **sliding, "max_window_layers": 0}).layers.values()} == {
        "sliding_window"
    }
    assert {s.kind for s in specs_of({**config, **sliding, "max_window_layers": 8}).layers.values()} == {
        "full_attention"
    }


def test_a_model_that_the_version_no_longer_has_is_refused_with_the_last_that_has_it() -> None:
    config = {**LLAMA, "architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": [0, 1] * 4}
    with pytest.raises(UnknownModelError, match=r"vLLM removed MiniMax-Text-01/M1 after 0\.23"):
        specs_of(config)
    assert specs_of(config, vllm_version=(0, 23)).has_state


def test_a_drafter_is_refused_for_a_model_without_mtp_layers() -> None:
    with pytest.raises(UnknownModelError, match="the Llama family has no MTP layers"):
        specs_of(LLAMA, draft_layers=True)


def test_no_two_families_claim_one_name() -> None:
    assert len(BY_ARCHITECTURE) == sum(len(family.architectures) for family in FAMILIES)
    assert len(BY_MODEL_TYPE) == sum(len(family.model_types) for family in FAMILIES)


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_nextn_predict_layers"])
def test_an_absurd_number_of_layers_is_refused_at_once(key: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: key '{key}' is 1000000000; expected at most 1,000"):
        specs_of({**DEEPSEEK, key: 10**9}, draft_layers=True)


def test_a_model_of_state_layers_alone_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="every layer keeps recurrent state"):
        specs_of({**QWEN3_NEXT, "full_attention_interval": 9})
