"""A fill changes exactly the bytes that its blocks own, in every way an engine may lay pages out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodebench.fill import Constant, Content, GroupPages, LayerPages, Normal
from decodebench.kv.content import Numbers, PackedRows, PageContent, State, TypedPart, Zeros
from decodebench.kv.writes import GroupWrites
from tests.fill.pool import POISON, Layer, poisoned, typed

BLOCKS = 12
BF16 = torch.bfloat16


def _strided(device, shape, strides, offset, total, padding=None, dtype=BF16, num_blocks=BLOCKS) -> Layer:
    raw = poisoned(total, device)
    return Layer(raw, [typed(raw, dtype, shape, strides, offset)], num_blocks, padding)


def dense(device) -> tuple[Layer, int, int, PageContent]:
    """Layer outermost: [L, B, H, N, C], one dense page after another, behind another layer."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (256, 128, 32, 1), 1024, 2048 + BLOCKS * 512 + 64)
    return layer, 512, 4, Numbers("bfloat16")


def interleaved(device) -> tuple[Layer, int, int, PageContent]:
    """Block outermost, this layer second of three inside each block; rows outside heads ([B, L, N, H, C])."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (768, 32, 64, 1), 256, BLOCKS * 1536)
    return layer, 512, 4, Numbers("bfloat16")


def heads_outside_layers(device) -> tuple[Layer, int, int, PageContent]:
    """[B, H, L, N, C]: the heads of a page lie apart."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (768, 384, 32, 1), 128, BLOCKS * 1536)
    return layer, 512, 4, Numbers("bfloat16")


def heads_outside_blocks(device) -> tuple[Layer, int, int, PageContent]:
    """[L, H, B, N, C]: each head has its own region of blocks."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (128, BLOCKS * 128, 32, 1), 64, 4096 + BLOCKS * 512)
    return layer, 512, 4, Numbers("bfloat16")


def padded(device) -> tuple[Layer, int, int, PageContent]:
    """640-byte pages with 512 bytes of content: the padding belongs to the page."""
    layer = _strided(
        device, (BLOCKS, 2, 4, 32), (320, 128, 32, 1), 64, 128 + BLOCKS * 640 + 32, (128 + 512, 128, 640)
    )
    return layer, 640, 4, Numbers("bfloat16")


def padded_between_layers(device) -> tuple[Layer, int, int, PageContent]:
    """Padded pages of two layers interleaved: the padding is ours, the neighbour behind it is not."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (640, 128, 32, 1), 0, BLOCKS * 1280, (512, 128, 1280))
    return layer, 640, 4, Numbers("bfloat16")


def no_room_for_padding(device) -> tuple[Layer, int, int, PageContent]:
    """The spec says 640 bytes, blocks are 512 apart: the bytes behind the content are the next block's."""
    layer = _strided(device, (BLOCKS, 2, 4, 32), (256, 128, 32, 1), 0, BLOCKS * 512)
    return layer, 640, 4, Numbers("bfloat16")


def kernel_split(device) -> tuple[Layer, int, int, PageContent]:
    """Manager blocks of 8 rows in kernel blocks of 2: axis 0 is four times as long."""
    layer = _strided(device, (BLOCKS * 4, 1, 2, 32), (64, 64, 32, 1), 0, BLOCKS * 512 + 512)
    return layer, 512, 8, Numbers("bfloat16")


def kernel_split_heads_outside(device) -> tuple[Layer, int, int, PageContent]:
    layer = _strided(device, (BLOCKS * 2, 2, 4, 32), (128, BLOCKS * 256, 32, 1), 0, BLOCKS * 1024)
    return layer, 1024, 8, Numbers("bfloat16")


def odd_offset(device) -> tuple[Layer, int, int, PageContent]:
    """Nothing is aligned to more than two bytes."""
    layer = _strided(device, (BLOCKS, 1, 3, 5), (15, 15, 5, 1), 1, 2 + BLOCKS * 30 + 4)
    return layer, 30, 3, Numbers("bfloat16")


def plain_fp8(device) -> tuple[Layer, int, int, PageContent]:
    layer = _strided(device, (BLOCKS, 2, 4, 32), (256, 128, 32, 1), 0, BLOCKS * 256 + 8, dtype=torch.uint8)
    return layer, 256, 4, Numbers("float8_e4m3fn")


def raw_state(device) -> tuple[Layer, int, int, PageContent]:
    """A Mamba layer of vLLM 0.32: one raw int8 view in padded pages."""
    layer = _strided(
        device, (BLOCKS, 1, 1, 200), (256, 256, 200, 1), 0, BLOCKS * 256, (200, 56, 256), dtype=torch.int8
    )
    return layer, 256, 1, State((TypedPart("bfloat16", (4, 5)), TypedPart("float32", (2, 20))))


def state_list_in_one_page(device) -> tuple[Layer, int, int, PageContent]:
    """Older state tensors: each a strided view into the same padded pages."""
    raw = poisoned(BLOCKS * 256, device)
    views = [
        typed(raw, BF16, (BLOCKS, 4, 5), (128, 5, 1), 0),
        typed(raw, torch.float32, (BLOCKS, 2, 20), (64, 20, 1), 10),
    ]
    layer = Layer(raw, views, BLOCKS, (200, 56, 256))
    return layer, 256, 1, State((TypedPart("bfloat16", (4, 5)), TypedPart("float32", (2, 20))))


def state_tuple_apart(device) -> tuple[Layer, int, int, PageContent]:
    """State tensors that lie one behind the other, each dense over all blocks."""
    raw = poisoned(BLOCKS * 200, device)
    views = [
        typed(raw, BF16, (BLOCKS, 4, 5), (20, 5, 1), 0),
        typed(raw, torch.float32, (BLOCKS, 2, 20), (40, 20, 1), BLOCKS * 10),
    ]
    return (
        Layer(raw, views, BLOCKS),
        200,
        1,
        State((TypedPart("bfloat16", (4, 5)), TypedPart("float32", (2, 20)))),
    )


def packed_v4(device) -> tuple[Layer, int, int, PageContent]:
    layer = _strided(
        device,
        (BLOCKS, 1, 4, 584),
        (2880, 2336, 584, 1),
        0,
        BLOCKS * 2880,
        (2336, 544, 2880),
        dtype=torch.uint8,
    )
    return layer, 2880, 4, PackedRows("fp8_ds_mla_v4", 584)


def circular_buffer(device) -> tuple[Layer, int, int, PageContent]:
    layer = _strided(device, (BLOCKS, 1, 4, 16), (64, 64, 16, 1), 0, BLOCKS * 64, dtype=torch.uint8)
    return layer, 64, 1, Zeros()


LAYOUTS = [
    dense, interleaved, heads_outside_layers, heads_outside_blocks, padded, padded_between_layers, no_room_for_padding,
    kernel_split, kernel_split_heads_outside, odd_offset, plain_fp8, raw_state, state_list_in_one_page,
    state_tuple_apart, packed_v4, circular_buffer,
]  # fmt: skip


def _group(
    layer: Layer, page_bytes: int, rows: int, content: PageContent, container=None
) -> tuple[LayerPages, GroupPages]:
    views = layer.views[0] if len(layer.views) == 1 else layer.views
    cache = views if container is None else container
    pages = LayerPages.of(
        "layers.0", cache, num_blocks=BLOCKS, page_bytes=page_bytes, rows_per_block=rows, content=content
    )
    return pages, GroupPages.of([pages], block_size=rows)


@pytest.mark.parametrize("content", [Constant(0.015), Normal(0.0, 1.0, seed=1)], ids=["constant", "normal"])
@pytest.mark.parametrize("make", LAYOUTS)
def test_whole_blocks_change_exactly_the_bytes_they_own(make, content: Content, device: torch.device) -> None:
    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(st.integers(1, BLOCKS - 1), unique=True), st.lists(st.integers(1, BLOCKS - 1), unique=True)
    )
    def check(whole: list[int], zero: list[int]) -> None:
        layer, page_bytes, rows, meaning = make(device)
        pages, group = _group(layer, page_bytes, rows, meaning)
        content.prepare([pages])
        written = group.write(content, group.prepare([GroupWrites(whole=whole, zero=zero)]))
        owned = torch.zeros_like(layer.raw, dtype=torch.bool)
        for block in {*whole, *zero}:
            owned |= layer.owned(block)
        assert bool((layer.raw[~owned] == POISON).all())
        assert bool((layer.raw[owned] != POISON).float().mean() > 0.8) or not owned.any()  # 0xFF may be drawn
        for block in {*zero} - {*whole}:
            assert not layer.raw[layer.owned(block)].any()
        assert written.bytes == int(owned.sum())

    check()


@pytest.mark.parametrize("make", LAYOUTS)
def test_every_owned_byte_is_written(make, device: torch.device) -> None:
    """Two fills from opposite poisons end in the same bytes."""
    results = []
    for poison in (0xFF, 0x00):
        layer, page_bytes, rows, meaning = make(device)
        layer.raw.fill_(poison)
        pages, group = _group(layer, page_bytes, rows, meaning)
        content = Normal(0.0, 1.0, seed=5)
        content.prepare([pages])
        group.write(content, group.prepare([GroupWrites(whole=[1, 2, 3, 7, 9])]))
        results.append([layer.raw[layer.owned(block)].clone() for block in (1, 2, 3, 7, 9)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


def test_the_null_block_is_never_written() -> None:
    layer, page_bytes, rows, meaning = dense("cpu")
    _, group = _group(layer, page_bytes, rows, meaning)
    for writes in (GroupWrites(whole=[0, 6]), GroupWrites(zero=[0]), GroupWrites(whole=[BLOCKS])):
        with pytest.raises(ValueError, match="null block"):
            group.prepare([writes])


@pytest.mark.parametrize(
    "wrap", [lambda t: t, lambda t: [t], lambda t: (t,)], ids=["tensor", "list", "tuple"]
)
def test_a_tensor_is_filled_alone_in_a_list_or_in_a_tuple(wrap) -> None:
    layer, page_bytes, rows, meaning = dense("cpu")
    pages, group = _group(layer, page_bytes, rows, meaning, wrap(layer.views[0]))
    content = Constant(0.5)
    content.prepare([pages])
    group.write(content, group.prepare([GroupWrites(whole=[4])]))
    assert bool((layer.views[0][4] == 0.5).all())


def test_a_manager_block_is_ratio_consecutive_kernel_blocks(device: torch.device) -> None:
    """Case F14."""
    cache = torch.full((4 * 8, 1, 16, 36), float("nan"), dtype=BF16, device=device)
    pages = LayerPages.of(
        "mla", cache, num_blocks=8, page_bytes=64 * 72, rows_per_block=64, content=Numbers("bfloat16")
    )
    content = Constant(0.5)
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=64)
    group.write(content, group.prepare([GroupWrites(whole=[5])]))
    assert bool((cache[20:24] == 0.5).all())
    assert bool(cache[:20].isnan().all())
    assert bool(cache[24:].isnan().all())


def test_a_state_fill_leaves_other_requests_states_bit_identical(device: torch.device) -> None:
    """Case F3: request A owns row 1, request B is filled into row 2; strided rows with padding between them."""
    raw = poisoned(4 * 64, device)
    state = typed(raw, torch.float32, (4, 3, 4), (16, 4, 1))
    state[1] = 7.0
    before = raw.clone()
    pages = LayerPages.of(
        "mamba",
        [state],
        num_blocks=4,
        page_bytes=48,
        rows_per_block=1,
        content=State((TypedPart("float32", (3, 4)),)),
    )
    content = Constant(0.25)
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=400)
    group.write(content, group.prepare([GroupWrites(whole=[2])]))
    assert bool((state[2] == 0.25).all())
    raw[128 : 128 + 48] = before[128 : 128 + 48]
    assert torch.equal(raw, before)


def test_two_groups_on_one_storage_write_only_their_own_blocks(device: torch.device) -> None:
    """Case F4: attention rows and a float32 state alias the same bytes; a block is read by the group that owns it."""
    raw = poisoned(BLOCKS * 512, device)
    attention = typed(raw, BF16, (BLOCKS, 2, 4, 32), (256, 128, 32, 1))
    state = typed(raw, torch.int8, (BLOCKS, 1, 1, 400), (512, 512, 400, 1))
    keys = LayerPages.of(
        "attn", attention, num_blocks=BLOCKS, page_bytes=512, rows_per_block=4, content=Numbers("bfloat16")
    )
    states = LayerPages.of(
        "mamba",
        state,
        num_blocks=BLOCKS,
        page_bytes=512,
        rows_per_block=1,
        content=State((TypedPart("float32", (100,)),)),
    )
    content = Constant(0.5)
    content.prepare([keys, states])
    for pages, block in ((keys, [1, 2, 5]), (states, [3, 6])):
        group = GroupPages.of([pages], block_size=4)
        group.write(content, group.prepare([GroupWrites(whole=block)]))
    assert bool((attention[[1, 2, 5]] == 0.5).all())
    numbers = raw.view(torch.float32).view(BLOCKS, 128)
    assert bool((numbers[[3, 6], :100] == 0.5).all())
    assert not numbers[[3, 6], 100:].any()
    assert bool((raw.view(BLOCKS, 512)[[0, 4, 7, 8, 9, 10, 11]] == POISON).all())
