"""Which layer is of which kind, for families that the engine's CPU build cannot construct as an oracle."""

import re
from typing import Any

import pytest

from decodebench.kv.specs import INDEXER, MLA, SlidingWindowMLA
from tests.models.configs import DEEPSEEK, DEEPSEEK_SPARSE, DEEPSEEK_V4, LLAMA, specs_of

KIMI = {
    **DEEPSEEK,
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "num_hidden_layers": 5,
    "linear_attn_config": {
        "kda_layers": [1, 2, 4],
        "full_attn_layers": [3, 5],
        "num_heads": 8,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
MINIMAX = {**LLAMA, "architectures": ["MiniMaxM1ForCausalLM"], "attn_type_list": [0, 0, 0, 1] * 2}


def kinds(config: dict[str, Any], **flags: Any) -> dict[int, list[str]]:
    """Layer index -> kinds of its caches, in registration order."""
    found: dict[int, list[str]] = {}
    for name, spec in specs_of(config, **flags).layers.items():
        index = re.search(r"layers\.(\d+)\.", name)
        assert index is not None
        kind = "indexer" if isinstance(spec, MLA) and spec.cache_role == INDEXER else spec.kind
        found.setdefault(int(index[1]), []).append(kind)
    return found


def test_kimi_linear_numbers_its_layers_from_one() -> None:
    assert kinds(KIMI) == {
        0: ["mamba"],
        1: ["mamba"],
        2: ["mla_attention"],
        3: ["mamba"],
        4: ["mla_attention"],
    }


def test_minimax_01_is_linear_where_its_list_says_zero() -> None:
    found = kinds(MINIMAX, vllm_version=(0, 23))
    assert [index for index, caches in found.items() if caches == ["full_attention"]] == [3, 7]


@pytest.mark.parametrize(
    ("sharing", "picking"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"index_topk_freq": 4}, [0, 1, 5]),
        ({"index_topk_freq": 3, "index_skip_topk_offset": 1}, [0, 3, 6]),
        ({"index_topk_pattern": "FSSFSS"}, [0, 3, 6, 7]),
    ],
)
def test_layers_that_reuse_an_earlier_layers_picks_own_no_indexer(
    sharing: dict[str, Any], picking: list[int]
) -> None:
    found = kinds({**DEEPSEEK_SPARSE, "num_hidden_layers": 8, **sharing})
    assert [index for index, caches in found.items() if "indexer" in caches] == picking
    assert all(caches[-1] == "mla_attention" for caches in found.values())


def test_each_deepseek_v4_layer_owns_the_caches_of_its_ratio() -> None:
    window, rows, state = "sliding_window_mla", "mla_attention", "sliding_window_mla"
    assert kinds(DEEPSEEK_V4) == {
        0: [window],
        1: [rows, state, window, rows, state],
        2: [window, rows, state],
        3: [rows, state, window, rows, state],
    }


def test_deepseek_v4_layer_types_say_the_same_as_ratios() -> None:
    types = ["sliding_attention", *["compressed_sparse_attention", "heavily_compressed_attention"] * 2]
    config = {key: value for key, value in DEEPSEEK_V4.items() if key != "compress_ratios"}
    same = {**DEEPSEEK_V4, "compress_ratios": [0, 4, 128, 4]}
    assert specs_of({**config, "layer_types": types}).layers == specs_of(same).layers


def test_deepseek_v4_states_span_two_rows_where_rows_overlap() -> None:
    states = {
        (spec.block_size, spec.sliding_window, spec.head_size)
        for name, spec in specs_of(DEEPSEEK_V4).layers.items()
        if name.endswith("state_cache") and isinstance(spec, SlidingWindowMLA)
    }
    assert states == {(4, 8, 2048), (4, 8, 512), (8, 128, 1024)}
