"""Blocks needed on a running engine, from its description alone."""

import pytest

from decodebench.kv.blocks import GroupShape, select
from decodebench.kv.capacity import decode_blocks
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.limits import EngineLimits
from decodebench.kv.running import groups_of_shapes
from decodebench.kv.specs import ChunkedLocal, CircularBuffer, FullAttention, MambaState, SlidingWindow

LIMITS = EngineLimits(max_model_len=8192, max_num_batched_tokens=2048)


def test_the_need_of_an_engines_groups_is_that_of_the_planned_ones():
    """The planned specs carry heads and dtypes, the engine's description does not: blocks are the same."""
    cell = {"num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
    planned = [
        FullAttention(block_size=16, **cell),
        SlidingWindow(block_size=16, sliding_window=128, **cell),
        ChunkedLocal(block_size=16, attention_chunk_size=512, **cell),
        MambaState(
            block_size=64, shapes=((8,),), dtypes=("float32",), cache_mode="align", num_speculative_blocks=1
        ),
        MambaState(block_size=8192, shapes=((8,),), dtypes=("float32",), cache_mode="none"),
        CircularBuffer(block_size=8, **cell),
    ]
    shapes = [
        GroupShape("full_attention", 16),
        GroupShape("sliding_window", 16, window=128),
        GroupShape("chunked_local", 16, window=512),
        GroupShape("state", 64, scratch_blocks=1),
        GroupShape("state", 8192),
        GroupShape("circular_buffer", 8),
    ]
    groups = [KVCacheGroup((f"layers.{i}",), spec) for i, spec in enumerate(planned)]
    for context in (1, 100, 1000, 5000):
        running = decode_blocks(groups_of_shapes(shapes, 8192), context, LIMITS, output=100)
        assert running == decode_blocks(groups, context, LIMITS, output=100)


def test_every_external_count_has_its_state_at_the_boundary():
    """Full attention hit 32 tokens, state 16, and the connector adds 8: each group gets its own part of [32, 40)."""
    full = select(GroupShape("full_attention", 16), [1, 2, 3], 32, 40)
    assert ([*full.whole], [(p.block_id, p.first_token, p.end_token) for p in full.partial]) == (
        [],
        [(3, 0, 8)],
    )
    state = select(GroupShape("state", 16), [4, 0, 6], 32, 40)
    assert [*state.whole] == [6]
    with pytest.raises(ValueError, match="no external tokens"):
        select(GroupShape("state", 16), [4, 0, 6], 32, 32)
