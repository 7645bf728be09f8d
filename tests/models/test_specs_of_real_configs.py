"""Every real config gives the layers that vLLM's own spec classes gave for it (`../shared/configs/SPECS.md`)."""

import re
from collections import Counter
from pathlib import Path

import pytest

from decodebench.kv.specs import MLA, AttentionSpec, ChunkedLocal, LayerSpec, MambaState, SlidingWindow
from decodebench.models import EngineFlags, ModelSpecs, load

CONFIGS = Path(__file__).parents[3] / "shared" / "configs"
# SPECS.md was derived with a model length of at most 128 Ki tokens and with no KV dtype taken from the checkpoint.
FLAGS: dict[str, dict[str, object]] = {
    "MiniMaxAI__MiniMax-M1-80k": {"vllm_version": (0, 23)},
    "MiniMaxAI__MiniMax-Text-01": {"vllm_version": (0, 23)},
    "nvidia__Gemma-4-31B-IT-NVFP4": {"kv_cache_dtype": "bfloat16"},
}


def sections() -> dict[str, str]:
    """SPECS.md's text on each model; GLM-5's equals GLM-5.1's, whose configs differ in name only."""
    if not (CONFIGS / "SPECS.md").exists():
        return {}
    parts = re.split(r"^### ", (CONFIGS / "SPECS.md").read_text(), flags=re.M)[1:]
    return {part.split("\n", 1)[0].strip(): part for part in parts}


def described(name: str, spec: LayerSpec) -> str:
    """One layer in SPECS.md's words."""
    words = [f"{spec.kind} bs={spec.block_size}"]
    if isinstance(spec, MambaState):
        words += [f"shapes={spec.shapes} dtypes={list(spec.dtypes)} state={spec.page_bytes_unpadded}"]
        words += [f"page={spec.page_bytes} ckpt={spec.num_prefill_checkpoint_blocks}"]
        return " ".join(words)
    assert isinstance(spec, AttentionSpec), name
    words += [f"kv_heads={spec.num_kv_heads} head={spec.head_size}/{spec.head_size_v} dtype={spec.dtype}"]
    if isinstance(spec, SlidingWindow):
        words += [f"window={spec.sliding_window}"]
    if isinstance(spec, ChunkedLocal):
        words += [f"chunk={spec.attention_chunk_size}"]
    if spec.tokens_per_state != 1:
        words += [f"tokens_per_state={spec.tokens_per_state}"]
    if spec.state_content_bytes is not None:
        words += [f"content={spec.state_content_bytes}"]
    if getattr(spec, "alignment", None) is not None:
        words += [f"align={spec.alignment}"]  # type: ignore[attr-defined]
    return " ".join([*words, f"raw={spec.page_bytes_unpadded} page={spec.page_bytes}"])


def specs_of(name: str) -> ModelSpecs:
    stated = re.search(r"max_model_len used (\d+)", sections().get(name, ""))
    length = int(stated[1]) if stated else 131072
    return load(CONFIGS / f"{name}.json", EngineFlags(max_model_len=length, **FLAGS.get(name, {})))  # type: ignore[arg-type]


@pytest.mark.skipif(not sections(), reason="no ../shared/configs/SPECS.md beside the repository")
class TestRealConfigs:
    @pytest.mark.parametrize("name", sorted(sections()))
    def test_layers_equal_those_of_the_engines_spec_classes(self, name: str) -> None:
        lines = re.findall(r"^- (\d+) x `(.*)`$", sections()[name], flags=re.M)
        assert lines
        specs = specs_of(name)
        ours = Counter(described(layer, spec) for layer, spec in specs.layers.items())
        assert ours == Counter({line: int(count) for count, line in lines})

    @pytest.mark.parametrize("name", sorted(sections()))
    def test_layout_is_the_one_the_engine_resolves(self, name: str) -> None:
        stated = re.search(r"layout (\w+)", sections()[name])
        assert stated is not None
        assert specs_of(name).layout == stated[1]

    def test_every_config_beside_the_table_is_in_it_or_equals_one_that_is(self) -> None:
        names = {path.stem for path in CONFIGS.glob("*.json")}
        assert names - set(sections()) == {"zai-org__GLM-5"}
        first, second = specs_of("zai-org__GLM-5"), specs_of("zai-org__GLM-5.1")
        assert first.layers == second.layers

    def test_latent_layers_are_marked_as_replicated(self) -> None:
        specs = specs_of("deepseek-ai__DeepSeek-V3")
        assert specs.replicated
        assert all(isinstance(spec, MLA) and spec.max_tp_shards == 1 for spec in specs.layers.values())
