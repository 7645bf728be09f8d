"""Pages of the very views that vLLM makes: every layout, padded or split, of vLLM's own spec classes."""

import pytest
import torch

from decodebench.fill import Constant, GroupPages, LayerPages
from decodebench.kv.content import Numbers, PackedRows, PageContent, State, TypedPart
from decodebench.kv.writes import GroupWrites
from tests.fill.pool import POISON, Layer

interface = pytest.importorskip("vllm.v1.kv_cache_interface")
KVCacheLayout = pytest.importorskip("vllm.v1.kv_cache_layout").KVCacheLayout
BF16 = torch.bfloat16
BLOCKS, LAYERS = 6, 3

SPECS: dict[str, tuple[object, PageContent]] = {
    "full": (
        interface.FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=BF16),
        Numbers("bfloat16"),
    ),
    "sliding": (
        interface.SlidingWindowSpec(block_size=4, num_kv_heads=4, head_size=32, dtype=BF16, sliding_window=8),
        Numbers("bfloat16"),
    ),
    "padded": (
        interface.FullAttentionSpec(
            block_size=16, num_kv_heads=1, head_size=32, dtype=torch.float32, page_size_padded=4608
        ),
        Numbers("float32"),
    ),
    "mla": (
        interface.MLAAttentionSpec(
            block_size=64, num_kv_heads=1, head_size=512, dtype=torch.uint8, tokens_per_state=4,
            state_content_bytes=584, alignment=576,
        ),
        PackedRows("fp8_ds_mla_v4", 584),
    ),
    "indexer": (
        interface.MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=132, dtype=torch.uint8, alignment=576),
        PackedRows("indexer_fp8", 132),
    ),
    "mamba": (
        interface.MambaSpec(
            block_size=400, shapes=((3, 64), (4, 16, 8)), dtypes=(BF16, torch.float32), page_size_padded=3072
        ),
        State((TypedPart("bfloat16", (3, 64)), TypedPart("float32", (4, 16, 8)))),
    ),
}  # fmt: skip


def _views(spec, layout, kernel_block_size=None) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Views of `LAYERS` layers, placed as vLLM places them: layers outermost, or all layers inside a block."""
    page = spec.page_size_bytes
    raw = torch.full((LAYERS * BLOCKS * page,), -1, dtype=torch.int8)
    layer_stride, block_stride = (page * BLOCKS, page) if layout.is_layer_compact else (page, page * LAYERS)
    if layout.name == "BHLNC" and spec.num_heads > 1:
        layer_stride = spec.num_states * spec.state_content_size_bytes
    names = [str(i) for i in range(LAYERS)]
    tensor = interface.KVCacheTensor(
        size=raw.numel(), layers=names, layer_stride=layer_stride, block_stride=block_stride
    )
    if layout.name == "LHBNC" and spec.num_heads > 1:
        tensor.block_stride = page // spec.num_heads
    return raw, interface.create_kv_cache_views(raw, spec, BLOCKS, layout, tensor, kernel_block_size)


def _check(spec, content: PageContent, layout, kernel_block_size=None) -> None:
    raw, views = _views(spec, layout, kernel_block_size)
    page, state = spec.page_size_bytes, isinstance(content, State)
    layers = [
        LayerPages.of(
            str(i),
            view,
            num_blocks=BLOCKS,
            page_bytes=page,
            rows_per_block=1 if state else spec.num_states,
            content=content,
        )
        for i, view in enumerate(views)
    ]
    group = GroupPages.of(layers, block_size=spec.block_size)
    filler = Constant(0.015)
    filler.prepare(layers)
    written = group.write(filler, group.prepare([GroupWrites(whole=[2, 4], zero=[5])]))
    assert written.pages == 3 * LAYERS
    assert written.bytes == 3 * LAYERS * page
    as_bytes = raw.view(torch.uint8)
    owned = torch.zeros(len(raw), dtype=torch.bool)
    for view in views:
        offset, stride = view.storage_offset() * view.element_size(), view.stride(0) * view.element_size()
        unpadded = view[0].numel() * view.element_size() * (len(view) // BLOCKS)
        padding = (offset + unpadded, page - unpadded, stride) if page > unpadded else None
        layer = Layer(as_bytes, [view], BLOCKS, padding)
        for block in (2, 4, 5):
            owned |= layer.owned(block)
    assert int(owned.sum()) == written.bytes
    assert bool((as_bytes[~owned] == POISON).all())
    assert bool((as_bytes[owned] != POISON).all())  # no byte of 0.015, of its codes or scales is 0xFF


@pytest.mark.parametrize("layout", list(KVCacheLayout), ids=lambda layout: layout.name)
@pytest.mark.parametrize("name", SPECS)
def test_every_layout_of_every_spec_changes_only_owned_bytes(name: str, layout) -> None:
    _check(*SPECS[name], layout)


@pytest.mark.parametrize("layout", [KVCacheLayout.LBHNC, KVCacheLayout.LBNHC], ids=lambda layout: layout.name)
@pytest.mark.parametrize(("name", "kernel_block_size"), [("full", 4), ("sliding", 2), ("indexer", 16)])
def test_kernel_blocks_are_parts_of_a_manager_block(name: str, kernel_block_size: int, layout) -> None:
    spec, content = SPECS[name]
    if name == "indexer":
        spec = interface.MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=132, dtype=torch.uint8)
    _check(spec, content, layout, kernel_block_size)
