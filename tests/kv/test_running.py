"""Blocks needed on a running engine, from its description alone."""

import pytest

from decodebench.kv.blocks import GroupShape, blocks_held, select
from decodebench.kv.capacity import decode_blocks
from decodebench.kv.limits import EngineLimits
from decodebench.kv.running import groups_of_engine

LIMITS = EngineLimits(max_model_len=8192, max_num_batched_tokens=2048)


def described(kind, block_size, window=0, scratch_blocks=0):
    return {
        "kind": kind,
        "block_size": block_size,
        "window": window,
        "scratch_blocks": scratch_blocks,
        "layers": 1,
    }


GROUPS = [
    described("full_attention", 16),
    described("sliding_window", 16, window=128),
    described("chunked_local", 16, window=512),
    described("state", 64, scratch_blocks=1),
    described("circular_buffer", 8),
]


@pytest.mark.parametrize("context", [1, 100, 1000, 5000])
def test_the_need_is_never_above_the_connectors_own_bound(context):
    needs = decode_blocks(groups_of_engine(GROUPS), context, LIMITS, output=100)
    for group, need in zip(GROUPS, needs, strict=True):
        shape = GroupShape(group["kind"], group["block_size"], group["window"], group["scratch_blocks"])
        assert need <= blocks_held(shape, context + 100, in_flight=LIMITS.max_concurrent_batches)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="'ring' of a KV cache group"):
        groups_of_engine([described("ring", 16)])


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
