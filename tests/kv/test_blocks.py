"""Which blocks a token range covers: cases F5, F8 to F12, and the rule itself against a token-by-token count."""

from hypothesis import given
from hypothesis import strategies as st

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.blocks import GroupShape, blocks_filled, select
from decodebench.kv.writes import GroupWrites, PartialBlock

FULL = "full_attention"


def covered(writes):
    """Every (block, first token, end token) that a fill owes, whole blocks with their size left open."""
    return {*writes.whole, *(part.block_id for part in writes.partial), *writes.zero}


def test_f5_each_group_gets_the_blocks_of_its_own_range():
    """40-token prompt, 16 hit locally, 23 external; full block 8, sliding block 4 behind nulls, state block 40."""
    full = select(GroupShape(FULL, 8), [1, 2, 3, 4, 5], 16, 39)
    assert full == GroupWrites(whole=[3, 4], partial=[PartialBlock(5, 0, 7)])
    sliding = select(GroupShape("sliding_window", 4, window=28), [0, 0, 0, *range(11, 18)], 16, 39)
    assert sliding == GroupWrites(whole=[12, 13, 14, 15, 16], partial=[PartialBlock(17, 0, 3)])
    assert select(GroupShape("state", 40), [9], 16, 39).whole == [9]


def test_f5_an_unaligned_local_hit_keeps_its_part_of_the_shared_block():
    writes = select(GroupShape(FULL, 8), [1, 2, 3, 4, 5], 12, 39)
    assert writes == GroupWrites(whole=[3, 4], partial=[PartialBlock(2, 4, 8), PartialBlock(5, 0, 7)])


def test_a_range_inside_one_block_is_cut_on_both_sides():
    assert select(GroupShape(FULL, 16), [7], 3, 9) == GroupWrites(whole=[], partial=[PartialBlock(7, 3, 9)])


def test_f9_nulls_of_a_sliding_table_are_never_named():
    """Table [0, 0, 0, 6, 7], window 8, block 4, 20 tokens: block 6 is logical block 3."""
    writes = select(GroupShape("sliding_window", 4, window=8), [0, 0, 0, 6, 7], 0, 19)
    assert writes == GroupWrites(whole=[6], partial=[PartialBlock(7, 0, 3)])


def test_f10_only_the_state_gets_content_and_scratch_is_zeroed():
    shape = GroupShape("state", 16, scratch_blocks=2)
    assert select(shape, [0, 0, 9, 10, 11], 0, 48) == GroupWrites(whole=[9], zero=[10, 11])


def test_f11_the_state_is_the_one_the_runner_reads_next():
    """Attention block 1616, state block 400, 3,200 tokens computed: entry ceil_div(3200, 400) - 1 = 7."""
    table = [0] * 7 + [21, 22]
    assert select(GroupShape("state", 400), table, 0, 3200).whole == [21]


def test_a_circular_buffer_is_one_zeroed_block():
    assert select(GroupShape("circular_buffer", 8), [5], 0, 1000) == GroupWrites(zero=[5])


@given(
    size=st.sampled_from([256, 64, 8, 4]),  # F8
    local=st.integers(0, 2000),
    external=st.integers(1, 2000),
    nulls=st.sets(st.integers(0, 600)),
    spare=st.integers(0, 3),
)
def test_exactly_the_tokens_of_the_range_are_written(size, local, external, nulls, spare):
    total = local + external
    table = [0 if i in nulls else 1000 + i for i in range(ceil_div(total, size) + spare)]
    writes = select(GroupShape(FULL, size), table, local, total)
    tokens: dict[int, int] = {}
    for block in writes.whole:
        tokens.update(((block - 1000) * size + t, block) for t in range(size))
    for part in writes.partial:
        tokens.update(((part.block_id - 1000) * size + t, 0) for t in range(part.first_token, part.end_token))
    expected = {t for t in range(local, total) if table[t // size]}
    assert set(tokens) == expected
    assert writes.num_blocks == len(covered(writes))
    assert 0 not in covered(writes)


@given(
    kind=st.sampled_from([FULL, "sliding_window", "chunked_local", "state"]),
    size=st.sampled_from([4, 16, 64]),
    window=st.sampled_from([8, 64, 100]),
    total=st.integers(1, 1000),
)
def test_blocks_filled_counts_what_select_names_on_the_engines_own_table(kind, size, window, total):
    shape = GroupShape(kind, size, window=window)
    skipped = {
        FULL: 0,
        "sliding_window": max(0, total - window + 1),
        "chunked_local": total // window * window,
        "state": total - 1,
    }[kind] // size
    table = [0] * skipped + list(range(1, ceil_div(total, size) - skipped + 1))
    assert select(shape, table, 0, total).num_blocks == blocks_filled(shape, total)
