"""Capacity lines that real deployments logged, reproduced to the token by a whole plan.

The deployments are described in `../shared/configs/capacity.md`; the configs here hold just the shapes it states.
"""

from pathlib import Path
from typing import Any

import pytest

from decodebench import plan
from decodebench.hma import Verdict

from .configs import llama, qwen35_27b


def gemma4_31b() -> dict[str, Any]:
    """10 full layers of 4 heads x 512, 50 sliding ones of 16 heads x 256, window 1024."""
    return {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_size": 5376,
        "num_hidden_layers": 60,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        "sliding_window": 1024,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
        "attention_k_eq_v": True,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_kv_shared_layers": 0,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    }


LINES = [
    pytest.param(
        qwen35_27b(),
        {"gpu": "rtx-5090", "vllm_version": "0.31", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8"},
        {"max_model_len": 131072, "available_kv_memory": "4.99GiB"},
        (302_921, 2.31),
        id="gdn-hybrid-fp8-tp2-prefix-caching",
    ),
    pytest.param(
        qwen35_27b(),
        {
            "gpu": "rtx-5090",
            "vllm_version": "0.23.1",
            "tensor_parallel_size": 2,
            "enable_prefix_caching": False,
        },
        {"max_model_len": 122633, "available_kv_memory": "3.86GiB"},
        (123_399, 1.01),
        id="gdn-hybrid-tp2",
    ),
    pytest.param(
        qwen35_27b(),
        {"gpu": "h100", "vllm_version": "0.19", "enable_prefix_caching": False},
        {"max_model_len": 32768, "available_kv_memory": "71.16GiB"},
        (290_864, 33.04),
        id="gdn-hybrid-old-line",
    ),
    pytest.param(
        gemma4_31b(),
        {"gpu": "h100", "vllm_version": "0.24", "max_num_batched_tokens": 8192},
        {"max_model_len": 262144, "available_kv_memory": "64.68GiB"},
        (626_949, 2.39),
        id="sliding-and-full-of-two-head-sizes",
    ),
    pytest.param(
        llama(layers=40),
        {"gpu": "l4", "vllm_version": "0.18"},
        {"max_model_len": 32768, "available_kv_memory": "6.51GiB"},
        (42_656, 1.30),
        id="dense",
    ),
    pytest.param(
        llama(layers=28, kv_heads=4),
        {"gpu": "l4", "vllm_version": "0.31"},
        {"max_model_len": 8192, "available_kv_memory": "16.00GiB"},
        (299_584, 36.57),
        id="dense-grouped",
    ),
]


@pytest.mark.parametrize(("config", "engine", "memory", "logged"), LINES)
def test_the_logged_line_is_reproduced(
    config: dict[str, Any], engine: dict[str, Any], memory: dict[str, Any], logged: tuple[int, float]
) -> None:
    line = plan(config, **engine, **memory).to_json()["log_line"]
    tokens, concurrency = logged
    assert line["tokens"] == tokens
    assert line["concurrency"] == concurrency
    assert f"{tokens:,} tokens" in line["lines"][0]


def test_without_the_manager_deepseek_v4_flash_needs_what_the_engine_said_it_lacks() -> None:
    """May 2026, a connector without support: the engine did not start, one request would have needed 38.87 GiB."""
    config = Path(__file__).parents[3] / "shared" / "configs" / "deepseek-ai__DeepSeek-V4-Flash.json"
    if not config.exists():
        pytest.skip("the shared configs are not here")
    answer = plan(
        config,
        gpu="h200",
        vllm_version="0.22",
        tensor_parallel_size=2,
        kv_cache_dtype="fp8",
        max_model_len=128_000,
        available_kv_memory="38GiB",
        kv_transfer_config={"kv_connector": "ExampleConnector", "kv_role": "kv_both"},
    )
    assert answer.hma.verdict is Verdict.OFF
    assert answer.off is not None
    assert f"{answer.off.requests[0].bytes / 2**30:.2f}" == "38.87"
    assert not answer.off.starts
