"""Which donor page fills which block: the same place, the last pages, the final state, never a page without content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.blocks import GroupShape, select
from decodebench.kv.donors import DonorPages, TooShort, kept_pages, plan_copies

FULL = GroupShape("full_attention", 16)
SLIDING = GroupShape("sliding_window", 16, window=64)
CHUNKED = GroupShape("chunked_local", 16, window=64)
STATE = GroupShape("state", 4096)
ALIGN = GroupShape("state", 64, scratch_blocks=2)
RING = GroupShape("circular_buffer", 8)


def skipped(shape, tokens):
    """Tokens whose blocks the engine has freed once `tokens` are computed."""
    if shape.kind == "sliding_window":
        return max(0, tokens - shape.window + 1)
    return tokens // shape.window * shape.window if shape.kind == "chunked_local" else 0


def table(shape, tokens, first_id=1, spare=1):
    """A block table as the engine would hold it, with room for tokens to come."""
    blocks = [first_id + at for at in range(ceil_div(tokens, shape.block_size) + spare)]
    return [0] * (skipped(shape, tokens) // shape.block_size) + blocks[
        skipped(shape, tokens) // shape.block_size :
    ]


def donor_of(shape, tokens, number=1):
    first, ids = kept_pages(shape, table(shape, tokens), tokens)
    return DonorPages(number, tokens, first, len(ids))


def planned(shape, total, donors, seed=0, local=0):
    ids = table(shape, total, first_id=1000)
    writes, sources = plan_copies(shape, ids, select(shape, ids, local, total), total, donors, seed)
    order = [*writes.whole, *(part.block_id for part in writes.partial)]
    return {
        ids.index(block): (donor, page)
        for block, donor, page in zip(order, sources.donors, sources.pages, strict=True)
    }


def sorted_sources(chosen):
    return [source for _, source in sorted(chosen.items())]


@pytest.mark.parametrize(
    ("shape", "tokens", "kept"),
    [
        (FULL, 33, (0, 3)), (FULL, 32, (0, 2)), (SLIDING, 200, (8, 5)), (SLIDING, 40, (0, 3)), (CHUNKED, 130, (8, 1)),
        (CHUNKED, 128, (8, 0)), (STATE, 200, (0, 1)), (ALIGN, 65, (1, 1)), (ALIGN, 64, (0, 1)), (RING, 200, (0, 1)),
    ],
)  # fmt: skip
def test_what_is_kept_of_a_finished_request(shape, tokens, kept):
    first, ids = kept_pages(shape, table(shape, tokens), tokens)
    assert (first, len(ids)) == kept


def test_an_align_state_is_the_one_after_the_last_token_and_not_the_last_block_of_the_table():
    assert kept_pages(ALIGN, [0, 7, 8, 9], 100) == (1, [7])  # 8 and 9 are speculative scratch


@pytest.mark.parametrize("shape", [FULL, SLIDING, CHUNKED, ALIGN, STATE])
@pytest.mark.parametrize("tokens", [15, 16, 17, 63, 64, 65, 79, 80, 81, 127, 129, 200])
def test_a_donor_of_the_same_length_gives_every_block_its_own_page(shape, tokens):
    donor = donor_of(shape, tokens)
    for position, (_, page) in planned(shape, tokens, [donor]).items():
        assert page == position - donor.first


@given(
    st.sampled_from([FULL, SLIDING, CHUNKED]),
    st.integers(1, 400),
    st.lists(st.integers(1, 400), min_size=1, max_size=4),
    st.integers(0, 2**63 - 1),
    st.integers(0, 399),
)
def test_a_page_has_content_wherever_its_block_needs_it(shape, total, lengths, seed, local):
    if local >= total:
        return
    donors = [donor_of(shape, tokens, number) for number, tokens in enumerate(lengths)]
    try:
        chosen = planned(shape, total, donors, seed, local)
    except TooShort:
        assert min(lengths) < 64 or (shape is CHUNKED and min(tokens % 64 for tokens in lengths) < 16)
        return
    for position, (number, page) in chosen.items():
        donor = donors[number]
        assert 0 <= page < donor.count
        end = min(16, total - position * 16)
        assert donor.num_tokens - (donor.first + page) * 16 >= end
    assert chosen == planned(shape, total, donors, seed, local)


@given(st.integers(0, 2**63 - 1), st.integers(2, 5))
def test_a_longer_context_takes_the_same_pages_for_the_positions_it_shares(seed, count):
    """A request that is filled again after a preemption must find the same content."""
    donors = [donor_of(FULL, 160, number) for number in range(count)]
    short, long = planned(FULL, 480, donors, seed), planned(FULL, 960, donors, seed)
    assert all(long[position] == source for position, source in short.items())


def test_a_context_longer_than_its_donor_goes_round_it_from_another_place_each_time():
    donor = donor_of(FULL, 160)
    pages = [page for _, page in sorted_sources(planned(FULL, 1600, [donor], seed=5))]
    laps = [pages[at : at + 10] for at in range(0, 100, 10)]
    assert laps[0] == list(range(10))
    assert all(sorted(lap) == list(range(10)) for lap in laps)
    assert len({lap[0] for lap in laps}) > 3


def test_several_donors_are_mixed_page_by_page_and_differently_for_each_seed():
    donors = [donor_of(FULL, 1600, number) for number in range(4)]
    mixes = [
        tuple(number for number, _ in sorted_sources(planned(FULL, 1600, donors, seed))) for seed in range(8)
    ]
    assert len(set(mixes)) == 8
    for mix in mixes:
        assert all(10 < mix.count(number) < 40 for number in range(4))
    assert all(page == at for at, (_, page) in enumerate(sorted_sources(planned(FULL, 1600, donors, 3))))


def test_states_of_a_batch_come_from_different_donors():
    donors = [donor_of(STATE, 160, number) for number in range(8)]
    chosen = [planned(STATE, 300, donors, seed)[0][0] for seed in range(32)]
    assert len(set(chosen)) > 5


@pytest.mark.parametrize("offset", [0, 5])
def test_a_window_takes_the_donors_last_pages_at_the_same_offset_or_one_page_earlier(offset):
    donor = donor_of(SLIDING, 200)  # its last page holds 8 tokens
    chosen = planned(SLIDING, 1000 + offset, [donor])  # its last block needs 8, or 13
    back = 0 if offset == 0 else 1
    last = max(chosen)
    for position, (_, page) in chosen.items():
        wanted = donor.count - 1 - (last - position) - back
        assert page == wanted or wanted < 0


def test_a_ring_is_copied_from_a_donor_of_the_same_length_only():
    same, other = donor_of(RING, 200), donor_of(RING, 201)
    writes = select(RING, [9], 0, 200)
    assert plan_copies(RING, [9], writes, 200, [same], 0)[0].whole == [9]
    kept, sources = plan_copies(RING, [9], writes, 200, [other], 0)
    assert (kept, len(sources.pages)) == (writes, 0)


@pytest.mark.parametrize(
    ("shape", "tokens", "reason"),
    [
        (FULL, 10, "no whole page of 16"),
        (SLIDING, 40, "a sliding window needs 63"),
        (CHUNKED, 64, "no whole page"),
    ],
)
def test_a_donor_without_a_page_for_a_block_is_too_short(shape, tokens, reason):
    with pytest.raises(TooShort, match=reason):
        planned(shape, 300, [donor_of(shape, tokens)])
