"""Capacity lines that real deployments logged, reproduced to the token from the models' shapes.

The shapes come from the table itself (`configs/capacity.md` of the shared facts), whose rows are named in each
case; nothing here is fitted to a line.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest

from decodebench.kv.alignment import align_hybrid
from decodebench.kv.capacity import Pool, plan_pool
from decodebench.kv.grouping import group_layers
from decodebench.kv.limits import EngineLimits
from decodebench.kv.rules import rules_for
from decodebench.kv.specs import FullAttention, LayerSpec, MambaState, SlidingWindow

GIB = 1 << 30


def possible_pools(specs: dict[str, LayerSpec], gib: float, limits: EngineLimits) -> list[Pool]:
    """Every pool that the logged memory can mean: the log rounds GiB to two decimals."""
    groups = group_layers(specs, rules=limits.rules)
    least, most = (plan_pool(groups, int((gib + error) * GIB), limits) for error in (-0.005, 0.005))
    return [replace(least, num_blocks=blocks) for blocks in range(least.num_blocks, most.num_blocks + 1)]


def dense(layers: int, kv_heads: int) -> dict[str, LayerSpec]:
    spec = FullAttention(block_size=16, num_kv_heads=kv_heads, head_size=128, dtype="bfloat16")
    return {f"layers.{i}": spec for i in range(layers)}


def gdn_hybrid(*, tp: int, dtype: str, dtype_bytes: int, prefix_caching: bool, max_model_len: int, rules):
    """16 full-attention layers (4 KV heads x 256) and 48 GDN layers (48 value and 16 key heads x 128).

    The float32 state and the convolution of 4 are the table's formula; KV heads and head size follow from the block
    of 784 bf16 tokens that holds such a state, 4,096 bytes a token.
    """
    value_heads, key_heads, head, kernel = 48 // tp, 16 // tp, 128, 4
    state = {
        "shapes": ((kernel - 1, (2 * key_heads + value_heads) * head), (value_heads, head, head)),
        "dtypes": ("bfloat16", "float32"),
        "mamba_type": "gdn_attn",
        "cache_mode": "align" if prefix_caching else "none",
    }
    kv_heads = 4 // tp
    raw = MambaState(block_size=max_model_len, **state).page_bytes
    aligned = align_hybrid(
        state_bytes=raw,
        attention_bytes_per_token=2 * kv_heads * 256 * dtype_bytes,
        block_size=16,
        rules=rules,
    )
    full = FullAttention(block_size=aligned.block_size, num_kv_heads=kv_heads, head_size=256, dtype=dtype)
    block = aligned.block_size if prefix_caching else max_model_len
    gdn = MambaState(block_size=block, page_bytes_padded=aligned.page_bytes, **state)
    return {f"layers.{i}": full if i % 4 == 3 else gdn for i in range(64)}


class Line(NamedTuple):
    specs: dict[str, LayerSpec]
    gib: float
    limits: EngineLimits
    tokens: int
    concurrency: str | None
    attention_block: int


def _limits(version: str, max_model_len: int) -> EngineLimits:
    return EngineLimits(max_model_len=max_model_len, max_num_batched_tokens=8192, rules=rules_for(version))


def gdn_tp2_bf16() -> Line:
    limits = _limits("0.23.1", 122_633)
    specs = gdn_hybrid(
        tp=2, dtype="bfloat16", dtype_bytes=2, prefix_caching=False, max_model_len=122_633, rules=limits.rules
    )
    return Line(specs, 3.86, limits, 123_399, "1.01", 784)


def gdn_tp1_old_line() -> Line:
    limits = _limits("0.19", 32_768)
    specs = gdn_hybrid(
        tp=1, dtype="bfloat16", dtype_bytes=2, prefix_caching=False, max_model_len=32_768, rules=limits.rules
    )
    return Line(specs, 71.16, limits, 290_864, "33.04", 784)


def dense_40_layers() -> Line:
    """October 2025: the dense line did not change between that version and 0.18."""
    return Line(dense(40, 8), 6.51, _limits("0.18", 32_768), 42_656, "1.30", 16)


def dense_28_layers() -> Line:
    return Line(dense(28, 4), 16.00, _limits("0.30", 8_192), 299_584, None, 16)


def gdn_tp2_fp8_prefix_caching() -> Line:
    """Held out until the code was frozen. August 2026 is the 0.28 to 0.30 time."""
    limits = _limits("0.28", 131_072)
    specs = gdn_hybrid(
        tp=2,
        dtype="float8_e4m3fn",
        dtype_bytes=1,
        prefix_caching=True,
        max_model_len=131_072,
        rules=limits.rules,
    )
    return Line(specs, 4.99, limits, 302_921, "2.31", 1568)


def mixed_heads_sliding() -> Line:
    """Held out until the code was frozen. 10 full (4 KV heads x 512) and 50 sliding layers (16 x 256, window 1024)."""
    full = FullAttention(block_size=16, num_kv_heads=4, head_size=512, dtype="bfloat16")
    window = SlidingWindow(
        block_size=16, num_kv_heads=16, head_size=256, dtype="bfloat16", sliding_window=1024
    )
    specs = {f"layers.{i}": full if i % 6 == 5 else window for i in range(60)}
    return Line(specs, 64.68, _limits("0.24", 262_144), 626_949, "2.39", 32)


LINES = [
    gdn_tp2_bf16,
    gdn_tp1_old_line,
    dense_40_layers,
    dense_28_layers,
    gdn_tp2_fp8_prefix_caching,
    mixed_heads_sliding,
]


@pytest.mark.parametrize("line", LINES)
def test_the_logged_line_is_reproduced(line):
    specs, gib, limits, tokens, concurrency, attention_block = line()
    pools = possible_pools(specs, gib, limits)
    exact = [pool for pool in pools if pool.logged_tokens == tokens]
    full_groups = [group for group in pools[0].groups if group.kind == "full_attention"]
    assert [group.block_size for group in full_groups] == [attention_block]
    assert exact, f"logged {tokens}, possible {[pool.logged_tokens for pool in pools]}"
    if concurrency is not None:
        assert any(f"{concurrency}x" in pool.log_lines()[-1] for pool in exact)
