"""Pages kept of a donor and copied into other blocks: the same bytes, in every way an engine may lay pages out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodebench.fill import DonorBank
from decodebench.kv.content import State
from decodebench.kv.writes import GroupWrites, PartialBlock, Sources
from tests.fill.pool import POISON
from tests.fill.test_owned_bytes import BLOCKS, LAYOUTS, _group


def randomise(layer, blocks, seed=0):
    """Random bytes in the bytes that `blocks` own, poison elsewhere; what each block holds."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 255, layer.raw.shape, dtype=torch.uint8, generator=draw).to(layer.raw.device)
    held = {}
    for block in blocks:
        mask = layer.owned(block)
        layer.raw[mask] = noise[mask]
        held[block] = layer.raw[mask].clone()
    return held


@pytest.mark.parametrize("make", LAYOUTS)
def test_whole_blocks_get_the_donors_bytes_and_nothing_else_changes(make, device):
    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(st.integers(1, BLOCKS - 1), unique=True, min_size=1),
        st.lists(st.integers(1, BLOCKS - 1), unique=True, min_size=1),
        st.data(),
    )
    def check(kept, targets, data):
        layer, page_bytes, rows, meaning = make(device)
        _, group = _group(layer, page_bytes, rows, meaning)
        held = randomise(layer, kept)
        bank = DonorBank({0: group})
        assert bank.keep(7, [kept]) == (len(kept),)
        layer.raw.fill_(POISON)
        pages = [data.draw(st.integers(0, len(kept) - 1)) for _ in targets]
        copies = bank.prepare(0, [(GroupWrites(whole=targets), Sources((7,) * len(pages), pages))])
        written = bank.write(0, copies)
        owned = torch.zeros_like(layer.raw, dtype=torch.bool)
        for target, page in zip(targets, pages, strict=True):
            mask = layer.owned(target)
            assert torch.equal(layer.raw[mask], held[kept[page]])
            owned |= mask
        assert bool((layer.raw[~owned] == POISON).all())
        assert written.bytes == int(owned.sum())

    check()


BY_ROWS = [make for make in LAYOUTS if not isinstance(make("cpu")[3], State) and make("cpu")[2] > 1]


@pytest.mark.parametrize("make", LAYOUTS)
def test_a_block_that_ends_inside_takes_the_donors_whole_page(make, device):
    layer, page_bytes, rows, meaning = make(device)
    _, group = _group(layer, page_bytes, rows, meaning)
    held = randomise(layer, [3, 4])
    bank = DonorBank({0: group})
    bank.keep(1, [[3, 4]])
    writes = GroupWrites(whole=[7], partial=[PartialBlock(6, 0, max(1, rows - 1))])
    bank.write(0, bank.prepare(0, [(writes, Sources((1, 1), (0, 1)))]))
    assert torch.equal(layer.raw[layer.owned(6)], held[4])


@pytest.mark.parametrize("make", BY_ROWS)
def test_a_block_whose_first_rows_are_computed_here_takes_the_donors_rows_and_is_zero_behind_them(
    make, device
):
    for first in (1, 2):
        layer, page_bytes, rows, meaning = make(device)
        _, group = _group(layer, page_bytes, rows, meaning)
        for end in range(first + 1, rows):
            randomise(layer, range(1, BLOCKS))
            bank = DonorBank({0: group})
            bank.keep(1, [[3, 4]])
            before = layer.raw.clone()
            writes = GroupWrites(partial=[PartialBlock(6, first, end)])
            bank.write(0, bank.prepare(0, [(writes, Sources((1,), (1,)))]))
            pages = group.pages[0]
            for field in pages.fields:
                theirs, ours = (_bytes(field[block]) for block in (4, 6))
                assert torch.equal(ours[first:end], theirs[first:end])
                assert not ours[end:].any()
            if pages.padding is not None:
                assert not pages.padding[6].any()
            mine = layer.owned(6)
            assert torch.equal(layer.raw[~mine], before[~mine])


def _bytes(field):
    """Rows of one page, kernel blocks opened, as bytes: numbers may be NaN."""
    return field.flatten(0, 1).contiguous().view(torch.uint8).flatten(1)


def test_rows_below_the_first_stay_as_they_are(device):
    layer, page_bytes, rows, meaning = LAYOUTS[0](device)
    _, group = _group(layer, page_bytes, rows, meaning)
    randomise(layer, [3])
    bank = DonorBank({0: group})
    bank.keep(1, [[3]])
    writes = GroupWrites(partial=[PartialBlock(6, 2, 4)])
    bank.write(0, bank.prepare(0, [(writes, Sources((1,), (0,)))]))
    view = layer.views[0]
    assert bool((view[6][:, :2].view(torch.uint8) == POISON).all())
    assert torch.equal(view[6][:, 2:].view(torch.uint8), view[3][:, 2:].view(torch.uint8))


def test_several_requests_take_pages_of_several_donors_in_one_write(device):
    layer, page_bytes, rows, meaning = LAYOUTS[1](device)
    _, group = _group(layer, page_bytes, rows, meaning)
    held = randomise(layer, [1, 2, 3, 4])
    bank = DonorBank({0: group})
    bank.keep(1, [[1, 2]])
    bank.keep(2, [[3, 4]])
    fills = [
        (GroupWrites(whole=[8, 9], zero=[5]), Sources((1, 2), (1, 0))),
        (GroupWrites(whole=[9, 11]), Sources((1, 2), (0, 1))),  # 9 again: the first counts
    ]
    copies = bank.prepare(0, fills)
    assert copies.num_blocks == 4
    bank.write(0, copies)
    for block, source in {8: 2, 9: 3, 11: 4}.items():
        assert torch.equal(layer.raw[layer.owned(block)], held[source])
    assert not layer.raw[layer.owned(5)].any()


def test_a_bank_holds_what_it_says_until_the_donor_is_dropped(device):
    layer, page_bytes, rows, meaning = LAYOUTS[0](device)
    _, group = _group(layer, page_bytes, rows, meaning)
    bank = DonorBank({0: group})
    bank.keep(1, [[1, 2, 3]])
    assert bank.num_bytes == 3 * 512
    bank.drop(1)
    bank.drop(1)
    assert bank.num_bytes == 0
    with pytest.raises(ValueError, match="donor 1 of the bank holds no pages"):
        bank.prepare(0, [(GroupWrites(whole=[2]), Sources((1,), (0,)))])


@pytest.mark.parametrize(
    ("writes", "sources", "reason"),
    [
        (GroupWrites(whole=[0]), Sources((1,), (0,)), "null block"),
        (GroupWrites(whole=[BLOCKS]), Sources((1,), (0,)), "null block"),
        (GroupWrites(whole=[2]), Sources((1,), (1,)), "cannot be copied"),
        (GroupWrites(whole=[2]), Sources((1,), (-1,)), "cannot be copied"),
    ],
)
def test_what_lies_out_of_bounds_is_refused(writes, sources, reason):
    layer, page_bytes, rows, meaning = LAYOUTS[0]("cpu")
    _, group = _group(layer, page_bytes, rows, meaning)
    bank = DonorBank({0: group})
    bank.keep(1, [[4]])
    with pytest.raises(ValueError, match=reason):
        bank.prepare(0, [(writes, sources)])
