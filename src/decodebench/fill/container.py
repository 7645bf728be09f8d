"""What `register_kv_caches` hands over for one layer, read as pages.

vLLM 0.32 hands over one tensor a layer: attention `[B, H, N, C]` (strided in every axis: block-outermost layouts
interleave all layers inside a block, some put heads outside blocks), a Mamba state one raw `int8` view `(num_blocks,
1, 1, bytes)` (`v1/kv_cache_interface.py create_kv_cache_views`). Older versions hand over a list of state tensors,
which share one page or have a storage each. Axis 0 counts kernel blocks: when a backend splits a manager block in
`ratio` pieces, it is `num_blocks * ratio` long.

Nothing here writes. Whatever cannot be read as pages is a ValueError that names the layer.
"""

from dataclasses import dataclass, replace
from math import prod

import torch

from decodebench.fill.layout import ByteBox, PageLayout
from decodebench.fill.packed import packed_layout
from decodebench.kv.content import Numbers, PackedRows, PageContent, State, Zeros


@dataclass(frozen=True, slots=True)
class Piece:
    """Pages of one layer in one storage: block `b` starts at byte `base + b * block_stride`."""

    storage: torch.UntypedStorage
    base: int
    block_stride: int
    layout: PageLayout


@dataclass(frozen=True, slots=True)
class _Extent:
    """One tensor of the container in bytes: where block 0 starts and the axes inside a manager block."""

    storage: torch.UntypedStorage
    base: int
    block_stride: int
    sizes: tuple[int, ...]  # kernel blocks, then the tensor's own axes
    strides: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return prod(self.sizes)

    @property
    def is_dense(self) -> bool:
        spans = ((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
        return sum(spans) + 1 == self.num_bytes


def read_container(
    layer: str, cache: object, *, num_blocks: int, page_bytes: int, rows_per_block: int, content: PageContent
) -> tuple[Piece, ...]:
    """The pages of `layer`; one piece, unless older state tensors have a storage each."""
    extents = [_extent(layer, tensor, num_blocks) for tensor in _tensors(layer, cache)]
    page = _adjacent(extents)
    if page is not None:
        owned = _owned_bytes(page, num_blocks, page_bytes)
        return (_dense_piece(layer, page, owned, rows_per_block, content),)
    if len(extents) == 1:
        return (_scattered_piece(layer, extents[0], rows_per_block, content),)
    return _state_pieces(layer, extents, content)


def _tensors(layer: str, cache: object) -> list[torch.Tensor]:
    tensors = [cache] if isinstance(cache, torch.Tensor) else cache
    if not isinstance(tensors, list | tuple) or not tensors:
        raise ValueError(_unknown(layer, f"its KV cache is {type(cache).__name__}"))
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(_unknown(layer, f"its KV cache holds {type(tensor).__name__}"))
    return list(tensors)


def _unknown(layer: str, found: str) -> str:
    return (
        f"layer {layer}: {found}, which decodebench cannot fill; accepted are a tensor or a non-empty list or tuple of "
        "tensors whose first axis is num_blocks or a multiple of it. This vLLM version may need a newer decodebench."
    )


def _extent(layer: str, tensor: torch.Tensor, num_blocks: int) -> _Extent:
    if tensor.ndim < 1 or tensor.shape[0] == 0 or tensor.shape[0] % num_blocks or tensor.numel() == 0:
        raise ValueError(_unknown(layer, f"a tensor of shape {tuple(tensor.shape)} for {num_blocks} blocks"))
    ratio, item = tensor.shape[0] // num_blocks, tensor.element_size()
    inner_sizes = tensor.shape[1:] if tensor.ndim > 1 else (1,)
    inner_strides = tensor.stride()[1:] if tensor.ndim > 1 else (1,)
    sizes, strides = [*inner_sizes], [s * item for s in inner_strides]
    if strides[-1] == item or sizes[-1] == 1:
        sizes[-1], strides[-1] = sizes[-1] * item, 1
    else:
        sizes, strides = [*sizes, item], [*strides, 1]
    kernel_stride = tensor.stride(0) * item
    if any(
        n > 1 and s <= 0 for n, s in zip((tensor.shape[0], *sizes), (kernel_stride, *strides), strict=True)
    ):
        raise ValueError(
            _unknown(layer, f"a tensor of strides {tensor.stride()}, whose elements share memory")
        )
    return _Extent(
        tensor.untyped_storage(),
        int(tensor.storage_offset()) * item,
        ratio * kernel_stride,
        (ratio, *sizes),
        (kernel_stride, *strides),
    )


def _adjacent(extents: list[_Extent]) -> _Extent | None:
    """The extents as one dense extent, if inside a block each starts where the one before it ends."""
    first = extents[0]
    end = first.base
    for extent in extents:
        same_page = (
            extent.storage.data_ptr() == first.storage.data_ptr()
            and extent.block_stride == first.block_stride
        )
        if not (same_page and extent.base == end and extent.is_dense):
            return None
        end += extent.num_bytes
    if len(extents) == 1:
        return first
    return replace(first, sizes=(1, end - first.base), strides=(end - first.base, 1))


def _owned_bytes(page: _Extent, num_blocks: int, page_bytes: int) -> int:
    """Content and the padding behind it, the latter only if every block has room for it."""
    last_end = page.base + (num_blocks - 1) * page.block_stride + page_bytes
    has_room = page_bytes <= page.block_stride and last_end <= page.storage.nbytes()
    return max(page.num_bytes, page_bytes) if has_room else page.num_bytes


def _dense_piece(layer: str, page: _Extent, owned: int, rows_per_block: int, content: PageContent) -> Piece:
    box = ByteBox(0, (owned,), (1,))
    padding = ByteBox(page.num_bytes, (owned - page.num_bytes,), (1,)) if owned > page.num_bytes else None
    if isinstance(content, State) and content.num_bytes > page.num_bytes:
        raise ValueError(f"layer {layer}: a state of {content.num_bytes} bytes in a page of {page.num_bytes}")
    if isinstance(content, State | Zeros) or (isinstance(content, Numbers) and rows_per_block == 1):
        row = ByteBox(0, (1, 1, page.num_bytes), (owned, owned, 1))
        layout = PageLayout(content, 1, 1, box, (row,), padding)
    else:
        kernel_blocks = page.sizes[0]
        plain = _row_field(layer, page, rows_per_block)
        fields = _packed_fields(layer, plain, content) if isinstance(content, PackedRows) else (plain,)
        layout = PageLayout(content, kernel_blocks, rows_per_block // kernel_blocks, box, fields, padding)
    return Piece(page.storage, page.base, page.block_stride, layout)


def _scattered_piece(layer: str, extent: _Extent, rows_per_block: int, content: PageContent) -> Piece:
    """A page in several ranges (heads outside blocks): it has no padding, see `compute_layout_strides`."""
    if isinstance(content, PackedRows):
        raise ValueError(_unknown(layer, f"rows of {content.layout} do not lie in one range of bytes"))
    if rows_per_block == 1 or not isinstance(content, Numbers):
        box = ByteBox(0, (1, 1, *extent.sizes), (extent.strides[0], extent.strides[0], *extent.strides))
        layout = PageLayout(content, 1, 1, box, (box,))
    else:
        box = _row_field(layer, extent, rows_per_block)
        layout = PageLayout(content, extent.sizes[0], rows_per_block // extent.sizes[0], box, (box,))
    return Piece(extent.storage, extent.base, extent.block_stride, layout)


def _row_field(layer: str, page: _Extent, rows_per_block: int) -> ByteBox:
    """The rows of `[B, H, N, C]`, `[B, N, C]` or `[B, bytes]` with the axes (kernel block, N, H, C)."""
    kernel_blocks, *sizes = page.sizes
    kernel_stride, *strides = page.strides
    rows, remainder = divmod(rows_per_block, kernel_blocks)
    if len(sizes) == 1 and not remainder and sizes[0] % rows == 0:
        row_bytes = sizes[0] // rows
        return ByteBox(0, (kernel_blocks, rows, 1, row_bytes), (kernel_stride, row_bytes, row_bytes, 1))
    if len(sizes) not in (2, 3) or remainder or sizes[-2] != rows:
        raise ValueError(
            _unknown(
                layer,
                f"{kernel_blocks} kernel blocks of bytes {tuple(sizes)} for {rows_per_block} rows a block",
            )
        )
    heads, head_stride = (sizes[0], strides[0]) if len(sizes) == 3 else (1, strides[0])
    return ByteBox(0, (kernel_blocks, rows, heads, sizes[-1]), (kernel_stride, strides[-2], head_stride, 1))


def _packed_fields(layer: str, rows: ByteBox, content: PackedRows) -> tuple[ByteBox, ...]:
    """The fields of a packed layout: inside each kernel block all rows of one field, then all rows of the next."""
    layout = packed_layout(layer, content.layout, content.row_bytes)
    kernel_blocks, kernel_rows, heads, row_bytes = rows.sizes
    if heads != 1 or row_bytes != layout.row_bytes:
        raise ValueError(_unknown(layer, f"{heads} heads of {row_bytes} bytes a row for {content.layout}"))
    fields, offset = [], 0
    for field in layout.field_bytes:
        fields.append(
            ByteBox(offset, (kernel_blocks, kernel_rows, 1, field), (rows.strides[0], field, field, 1))
        )
        offset += kernel_rows * field
    return tuple(fields)


def _state_pieces(layer: str, extents: list[_Extent], content: PageContent) -> tuple[Piece, ...]:
    """State tensors that do not share a page: each takes its own part of the state."""
    if not isinstance(content, State) or len(content.parts) != len(extents):
        raise ValueError(_unknown(layer, f"{len(extents)} tensors apart for {type(content).__name__}"))
    pieces: list[Piece] = []
    for extent, part in zip(extents, content.parts, strict=True):
        if extent.num_bytes != part.num_bytes:
            raise ValueError(_unknown(layer, f"a state tensor of {extent.num_bytes} bytes for {part}"))
        own = State((part,))
        if extent.is_dense:
            pieces.append(_dense_piece(layer, extent, extent.num_bytes, 1, own))
        else:
            pieces.append(_scattered_piece(layer, extent, 1, own))
    return tuple(pieces)
