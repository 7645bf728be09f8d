"""Blocks of which only some rows get content."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodebench.fill import Constant, GroupPages, LayerPages, Normal
from decodebench.kv.content import Numbers, PackedRows
from decodebench.kv.writes import GroupWrites, PartialBlock
from tests.fill.pool import POISON, poisoned, typed

BLOCKS, ROWS = 6, 8
BF16 = torch.bfloat16
STRIDES = {
    "heads outside rows": (BLOCKS, (2 * ROWS * 16, ROWS * 16, 16, 1)),
    "rows outside heads": (BLOCKS, (2 * ROWS * 16, 16, 32, 1)),
    "heads outside blocks": (BLOCKS, (ROWS * 16, BLOCKS * ROWS * 16, 16, 1)),
    "kernel blocks of 2": (BLOCKS * 4, (2 * 2 * 16, 2 * 16, 16, 1)),
    "kernel blocks of 4, rows outside heads": (BLOCKS * 2, (4 * 2 * 16, 16, 32, 1)),
}


@pytest.mark.parametrize("name", STRIDES)
def test_rows_below_stay_rows_between_get_content_rows_behind_are_zero(
    name: str, device: torch.device
) -> None:
    first_axis, strides = STRIDES[name]
    kernel_rows = ROWS * BLOCKS // first_axis

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted), min_size=1, max_size=4)
    )
    def check(ranges: list[list[int]]) -> None:
        raw = poisoned(BLOCKS * 2 * ROWS * 32, device)
        cache = typed(raw, BF16, (first_axis, 2, kernel_rows, 16), strides)
        pages = LayerPages.of(
            "attn",
            cache,
            num_blocks=BLOCKS,
            page_bytes=2 * ROWS * 32,
            rows_per_block=ROWS,
            content=Numbers("bfloat16"),
        )
        group = GroupPages.of([pages], block_size=ROWS)
        content = Constant(0.5)
        content.prepare([pages])
        parts = [PartialBlock(block, *tokens) for block, tokens in enumerate(ranges, start=1)]
        written = group.write(content, group.prepare([GroupWrites(partial=parts)]))
        for block in range(BLOCKS):
            first, end = ranges[block - 1] if 1 <= block <= len(ranges) else (ROWS, ROWS)
            for row in range(ROWS):
                kernel, inner = divmod(block * ROWS + row, kernel_rows)
                values = cache[kernel, :, inner]
                if row < first:
                    assert bool(values.isnan().all()), (block, row)
                else:
                    assert bool((values == (0.5 if row < end else 0.0)).all()), (block, row)
        assert written.bytes == sum((ROWS - first) * 2 * 32 for first, _ in ranges)

    check()


def test_padding_of_a_partial_block_is_zeroed(device: torch.device) -> None:
    raw = poisoned(BLOCKS * 640, device)
    cache = typed(raw, BF16, (BLOCKS, 1, 8, 32), (320, 256, 32, 1))
    pages = LayerPages.of(
        "attn", cache, num_blocks=BLOCKS, page_bytes=640, rows_per_block=8, content=Numbers("bfloat16")
    )
    content = Normal(3.0, 0.1, seed=2)
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=8)
    written = group.write(content, group.prepare([GroupWrites(partial=[PartialBlock(3, 2, 5)])]))
    page = raw.view(BLOCKS, 640)[3]
    assert bool((page[: 2 * 64] == POISON).all())
    assert bool((cache[3, 0, 2:5] > 2).all())
    assert not page[5 * 64 :].any()
    assert written.bytes == 6 * 64 + 128


def test_each_layer_of_a_group_turns_tokens_into_its_own_rows(device: torch.device) -> None:
    """Block of 256 tokens; one layer keeps a state per 4 tokens, one per 128. Tokens [16, 200) are external."""
    fine = torch.full((4, 1, 64, 8), float("nan"), device=device)
    coarse = torch.full((4, 1, 2, 8), float("nan"), device=device)
    layers = [
        LayerPages.of(
            "c4", fine, num_blocks=4, page_bytes=2048, rows_per_block=64, content=Numbers("float32")
        ),
        LayerPages.of(
            "c128", coarse, num_blocks=4, page_bytes=64, rows_per_block=2, content=Numbers("float32")
        ),
    ]
    content = Constant(0.5)
    content.prepare(layers)
    group = GroupPages.of(layers, block_size=256)
    group.write(content, group.prepare([GroupWrites(partial=[PartialBlock(2, 16, 200)])]))
    assert bool(fine[2, 0, :4].isnan().all())
    assert bool((fine[2, 0, 4:50] == 0.5).all())
    assert not fine[2, 0, 50:].any()
    assert bool((coarse[2, 0, 0] == 0.5).all())  # tokens 0..127: cut by the local part, complete in the range
    assert not coarse[2, 0, 1].any()  # tokens 128..255: the engine writes it when token 255 is computed


def test_packed_rows_keep_their_scales_with_them(device: torch.device) -> None:
    """Data and scales of a V4 row lie apart in the block: both of a cached row stay, both of a later one are zero."""
    cache = torch.full((3, 1, 4, 584), POISON, dtype=torch.uint8, device=device)
    pages = LayerPages.of(
        "mla",
        cache,
        num_blocks=3,
        page_bytes=4 * 584,
        rows_per_block=4,
        content=PackedRows("fp8_ds_mla_v4", 584),
    )
    content = Constant(0.015)
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=16)
    group.write(content, group.prepare([GroupWrites(partial=[PartialBlock(1, 4, 12)])]))
    block = cache[1].flatten()
    data, scales = block[: 4 * 576].view(4, 576), block[4 * 576 :].view(4, 8)
    for row, expected in enumerate(["kept", "content", "content", "zero"]):
        if expected == "kept":
            assert bool((data[row] == POISON).all() & (scales[row] == POISON).all())
        elif expected == "zero":
            assert not data[row].any()
            assert not scales[row].any()
        else:
            assert bool((data[row, :448] != 0).all())
            assert 100 < int(scales[row, 0]) < 127
    assert bool((cache[0] == POISON).all() & (cache[2] == POISON).all())


@pytest.mark.parametrize("tokens", [(-1, 3), (5, 4), (0, 9)])
def test_a_range_outside_of_the_block_is_refused(tokens: tuple[int, int]) -> None:
    cache = torch.zeros(4, 1, 8, 8)
    pages = LayerPages.of(
        "a", cache, num_blocks=4, page_bytes=256, rows_per_block=8, content=Numbers("float32")
    )
    with pytest.raises(ValueError, match="block of 8 tokens"):
        GroupPages.of([pages], block_size=8).prepare([GroupWrites(partial=[PartialBlock(1, *tokens)])])
