"""The installed engine builds models of these configs; every layer's name and spec must be ours, in its order."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from decodebench.kv.specs import AttentionSpec, LayerSpec, MambaState
from decodebench.models import EngineFlags, find_gpu
from decodebench.models.pipeline import partition
from tests.models.configs import LLAMA, NEMOTRON_H, QWEN3_NEXT, ZAMBA2, specs_of

SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "n_routed_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
MAMBA = {"mamba_d_state": 64, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 2}
GLM = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1}
MLA = {
    **GLM,
    "kv_lora_rank": 128,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "v_head_dim": 32,
}
QWEN_NEXT = {**QWEN3_NEXT, "vocab_size": 128, "num_experts": 8, "num_experts_per_tok": 2}
PATTERN = ["sliding_attention"] * 2 + ["full_attention"]


def small(architecture: str, model_type: str, **keys: Any) -> dict[str, Any]:
    return {**SMALL, "architectures": [architecture], "model_type": model_type, **keys}


CONFIGS = {
    "llama": {**LLAMA, "vocab_size": 128},
    "llama with layer types": {
        **LLAMA,
        "vocab_size": 128,
        "layer_types": PATTERN * 2 + PATTERN[:2],
        "sliding_window": 64,
    },
    "mistral without a window key": small("MistralForCausalLM", "mistral"),
    "mixtral": small("MixtralForCausalLM", "mixtral", sliding_window=64),
    "qwen2, all sliding": small("Qwen2ForCausalLM", "qwen2", **QWEN_WINDOW),
    "qwen3 moe, all sliding": small("Qwen3MoeForCausalLM", "qwen3_moe", **QWEN_WINDOW),
    "gemma2": small("Gemma2ForCausalLM", "gemma2"),
    "gemma3": small("Gemma3ForCausalLM", "gemma3_text", sliding_window=64),
    "gemma4": small(
        "Gemma4ForCausalLM",
        "gemma4_text",
        layer_types=PATTERN * 2,
        global_head_dim=64,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=0,
    ),
    "gpt-oss": small("GptOssForCausalLM", "gpt_oss", sliding_window=64),
    "llama4": small("Llama4ForCausalLM", "llama4_text", attention_chunk_size=64, intermediate_size_mlp=64),
    "deepseek": small("DeepseekV3ForCausalLM", "deepseek_v3", **MLA),
    "deepseek, drafting": small("DeepseekV3ForCausalLM", "deepseek_v3", num_nextn_predict_layers=1, **MLA),
    "jamba": small("JambaForCausalLM", "jamba", attn_layer_period=3, attn_layer_offset=1, mamba_dt_rank=16),
    "granite": small(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        layer_types=["mamba", "mamba", "attention"] * 2,
        shared_intermediate_size=64,
        **MAMBA,
    ),
    "nemotron": {
        **NEMOTRON_H,
        "hybrid_override_pattern": "M-M*M-",
        **{key: SMALL[key] for key in ("vocab_size", "n_routed_experts", "num_experts_per_tok")},
    },
    "falcon-h1": small("FalconH1ForCausalLM", "falcon_h1", mamba_d_ssm=512, **MAMBA),
    "zamba2": {**ZAMBA2, "vocab_size": 128, "num_mem_blocks": 2},
    "qwen3-next": {**QWEN_NEXT, "num_nextn_predict_layers": 0},
    "qwen3-next, drafting": QWEN_NEXT,
    "lfm2": small("Lfm2ForCausalLM", "lfm2", full_attn_idxs=[1, 4], conv_dim=256, block_dim=256),
    "minimax-m2": small("MiniMaxM2ForCausalLM", "minimax_m2", rotary_dim=16, scoring_func="sigmoid"),
    "glm4-moe": small("Glm4MoeForCausalLM", "glm4_moe", **GLM, num_nextn_predict_layers=0),
    "glm4-moe, drafting": small("Glm4MoeForCausalLM", "glm4_moe", **GLM, num_nextn_predict_layers=1),
}


def facts(spec: LayerSpec) -> dict[str, Any]:
    """Ours, in the words of `engine_specs.py`."""
    found: dict[str, Any] = {"block_size": spec.block_size, "page": spec.page_bytes}
    if isinstance(spec, MambaState):
        return found | {
            "shapes": [list(shape) for shape in spec.shapes],
            "dtypes": list(spec.dtypes),
            "type": spec.mamba_type,
            "mode": spec.cache_mode,
            "blocks": [spec.num_speculative_blocks, spec.num_prefill_checkpoint_blocks],
            "checkpoints_at": spec.prefill_checkpoint_alignment,
        }
    assert isinstance(spec, AttentionSpec)
    optional = (
        "sliding_window",
        "attention_chunk_size",
        "cache_dtype_str",
        "alignment",
        "is_index_group_leader",
    )
    found |= {name: getattr(spec, name) for name in optional if hasattr(spec, name)}
    return found | {
        "heads": [spec.num_kv_heads, spec.head_size, spec.head_size_v],
        "dtype": spec.dtype,
        "quant": spec.quant_mode,
        "stride": spec.stride_alignment,
        "tokens_per_state": spec.tokens_per_state,
        "content": spec.state_content_bytes,
        "tp_shards": spec.max_tp_shards,
    }


@pytest.fixture(scope="module")
def engine() -> dict[str, Any]:
    pytest.importorskip("vllm")
    script = Path(__file__).parent / "engine_specs.py"
    ran = subprocess.run(
        [sys.executable, str(script), json.dumps(CONFIGS)],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("SPECS ")]
    assert lines, f"the engine built no models:\n{ran.stderr[-3000:]}"
    told: dict[str, Any] = json.loads(lines[-1].removeprefix("SPECS "))
    return told


@pytest.mark.engine
class TestEngine:
    @pytest.mark.parametrize("name", CONFIGS)
    def test_builds_the_layers_that_we_name(self, engine: dict[str, Any], name: str) -> None:
        major, minor = map(int, engine["version"].split(".")[:2])
        flags: dict[str, Any] = {
            "gpu": find_gpu(engine["cpu"]),
            "vllm_version": (major, minor),
            "max_model_len": 4096,
        }
        if name.endswith("drafting"):
            flags |= {"draft_layers": True, "num_speculative_tokens": 1}
        specs = specs_of(CONFIGS[name], **flags)
        ours = [[layer, facts(spec)] for layer, spec in specs.layers.items()]
        assert ours == engine["layers"][name]

    def test_partitions_pipeline_stages_as_we_do(self, engine: dict[str, Any]) -> None:
        for case, spans in engine["partitions"].items():
            layers, stages = map(int, case.split("/"))
            assert partition(layers, EngineFlags(pipeline_parallel_size=stages)) == tuple(
                end - start for start, end in spans
            )
