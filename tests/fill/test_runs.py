import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decodebench.fill.runs import BlockSet, PreparedWrites, distinct, prepare_writes
from decodebench.kv.writes import GroupWrites, PartialBlock

CPU = torch.device("cpu")


def _ids(blocks: BlockSet) -> list[int]:
    in_runs = [block for first, end in blocks.runs for block in range(first, end)]
    return sorted(in_runs + blocks.scattered.tolist())


def _prepare(*writes: GroupWrites, block_size: int = 8) -> PreparedWrites:
    return prepare_writes(writes, num_blocks=100, block_size=block_size, page_bytes=1 << 16, device=CPU)


@given(st.lists(st.integers(1, 60)), st.sampled_from([64, 1 << 16, 1 << 18, 1 << 20]))
def test_every_block_is_in_a_run_or_scattered_exactly_once(ids: list[int], page_bytes: int) -> None:
    blocks = BlockSet.of(distinct(ids), CPU, page_bytes)
    assert _ids(blocks) == sorted(set(ids))
    assert blocks.num_blocks == len(set(ids))
    assert blocks.scattered.tolist() == sorted(blocks.scattered.tolist())


def test_a_contiguous_range_is_one_run_however_small() -> None:
    blocks = BlockSet.of(distinct(range(1, 65)), CPU, page_bytes=64)
    assert (blocks.runs, blocks.num_scattered) == (((1, 65),), 0)


def test_long_runs_are_in_place_and_the_short_rest_is_indexed() -> None:
    ids = [*range(1, 9), *range(20, 24), 30, *range(40, 42)]
    blocks = BlockSet.of(distinct(ids), CPU, page_bytes=1 << 18)
    assert blocks.runs == ((1, 9), (20, 24))
    assert blocks.scattered.tolist() == [30, 40, 41]


def test_of_many_short_runs_only_the_longest_is_in_place() -> None:
    ids = [block for first in range(1, 50, 10) for block in range(first, first + 4)]
    assert BlockSet.of(distinct(ids), CPU, page_bytes=1 << 10).runs == ((1, 5),)


def test_blocks_without_neighbours_are_all_indexed() -> None:
    assert BlockSet.of(distinct([3, 9, 5]), CPU, page_bytes=1 << 30).runs == ()
    assert BlockSet.of(distinct([3]), CPU, page_bytes=64).runs == ((3, 4),)


def test_a_block_that_several_requests_name_is_written_once() -> None:
    """Case F4."""
    writes = _prepare(GroupWrites(whole=[1, 2]), GroupWrites(whole=[2, 3]), GroupWrites(whole=[2]))
    assert _ids(writes.whole) == [1, 2, 3]
    assert writes.num_blocks == 3


@given(st.lists(st.tuples(*[st.lists(st.integers(1, 12), max_size=4)] * 3), max_size=3))
def test_a_block_named_in_several_ways_is_written_in_one(requests: list[tuple[list[int], ...]]) -> None:
    writes = _prepare(
        *(
            GroupWrites(
                whole=whole, partial=[PartialBlock(block, block % 3, 4) for block in partial], zero=zero
            )
            for whole, partial, zero in requests
        )
    )
    parts = [block for part in writes.partial for block in _ids(part.blocks)]
    written = [*_ids(writes.whole), *parts, *_ids(writes.zero)]
    named = {block for request in requests for ids in request for block in ids}
    assert sorted(written) == sorted(named)
    assert set(_ids(writes.whole)) == {block for whole, _, _ in requests for block in whole}


def test_blocks_with_the_same_tokens_share_one_partial_write() -> None:
    writes = _prepare(
        GroupWrites(partial=[PartialBlock(5, 0, 3)]),
        GroupWrites(partial=[PartialBlock(7, 0, 3), PartialBlock(8, 2, 8)]),
    )
    assert sorted(_ids(part.blocks) for part in writes.partial) == [[5, 7], [8]]


def test_a_partial_block_of_all_tokens_is_whole_and_of_none_zero() -> None:
    writes = _prepare(GroupWrites(partial=[PartialBlock(5, 0, 8), PartialBlock(6, 0, 0)]))
    assert (_ids(writes.whole), writes.partial, _ids(writes.zero)) == ([5], (), [6])


@pytest.mark.parametrize("block", [-1, 0, 100])
def test_the_null_block_and_blocks_outside_of_the_pool_are_refused(block: int) -> None:
    for writes in (
        GroupWrites(whole=[4, block]),
        GroupWrites(zero=[block]),
        GroupWrites(partial=[PartialBlock(block, 0, 3)]),
    ):
        with pytest.raises(ValueError, match="the pool has blocks 1 to 99"):
            _prepare(writes)
