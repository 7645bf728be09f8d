"""An audit passes what a fill wrote, and sees every single byte that it should not have: owned pages and all others."""

import pytest
import torch

from decodebench.fill import Canaries, Constant, DonorBank, Normal, wrong_blocks
from decodebench.kv.writes import GroupWrites, PartialBlock, Sources
from tests.fill.test_donor import randomise
from tests.fill.test_owned_bytes import BLOCKS, LAYOUTS, _group

CONTENTS = [Constant(0.5), Normal(0.0, 1.0, seed=1)]


def written(make, device, content):
    """A layer of which some blocks are filled, and what must be in them: (layer, group, expectations)."""
    layer, page_bytes, rows, meaning = make(device)
    pages, group = _group(layer, page_bytes, rows, meaning)
    partial = [PartialBlock(8, 0, 1)] if rows > 1 else []
    if content is None:
        randomise(layer, [1, 2])
        bank = DonorBank({0: group})
        bank.keep(1, [[1, 2]])
        writes = GroupWrites(whole=[4, 5, 7], partial=partial, zero=[10])
        copies = bank.prepare(
            0, [(writes, Sources((1,) * (3 + len(partial)), (1, 0, 1, 0)[: 3 + len(partial)]))]
        )
        bank.write(0, copies)
        return layer, group, lambda: bank.expected(0, copies)
    content.prepare([pages])
    prepared = group.prepare([GroupWrites(whole=[4, 5, 7], partial=partial, zero=[10])])
    group.write(content, prepared)
    return layer, group, lambda: (each for pages in group.pages for each in content.expected(pages, prepared))


@pytest.mark.parametrize("content", [*CONTENTS, None], ids=["constant", "normal", "donor"])
@pytest.mark.parametrize("make", LAYOUTS)
def test_every_changed_byte_of_an_owned_page_is_found(make, content, device):
    layer, _, expected = written(make, device, content)
    assert wrong_blocks(expected()) == set()
    for block in (4, 7, 10, *([8] if make(device)[2] > 1 else [])):
        places = layer.owned(block).nonzero()[:, 0]
        for place in (places[0], places[len(places) // 2], places[-1]):
            layer.raw[place] += 1
            assert wrong_blocks(expected()) == {block}
            layer.raw[place] -= 1


@pytest.mark.parametrize("make", LAYOUTS)
def test_a_changed_byte_of_an_unowned_page_changes_its_checksum(make, device):
    layer, _, _ = written(make, device, None)
    _, page_bytes, rows, meaning = make(device)
    canaries = Canaries({0: _group(layer, page_bytes, rows, meaning)[1]})
    before = canaries.take()
    assert canaries.changed(before, {4, 5})[1] == 0
    assert canaries.changed(before, {4, 5})[0] == (BLOCKS - 2) * len(before)
    for block in (0, 3, 11):
        place = layer.owned(block).nonzero()[7, 0]
        layer.raw[place] += 1
        assert canaries.changed(before, {4, 5})[1] == 1
        assert canaries.changed(before, {4, 5, block})[1] == 0
        layer.raw[place] -= 1


def test_swapped_words_change_a_checksum(device):
    layer, page_bytes, rows, meaning = LAYOUTS[0](device)
    randomise(layer, [3])
    canaries = Canaries({0: _group(layer, page_bytes, rows, meaning)[1]})
    before = canaries.take()
    mask = layer.owned(3).nonzero()[:, 0]
    one, two = mask[:16], mask[16:32]
    layer.raw[one], layer.raw[two] = layer.raw[two].clone(), layer.raw[one].clone()
    assert canaries.changed(before, set())[1] == 1
    assert torch.equal(before[0], canaries.take()[0]) is False
