"""Numbers to page bytes, by what the layer's spec says the bytes mean, never by the tensor's dtype."""

from collections.abc import Callable
from math import prod

import torch

from decodebench.fill.layout import PageLayout
from decodebench.fill.packed import LAYOUTS
from decodebench.kv.content import Numbers, PackedRows, State, TypedPart

Draw = Callable[[int, int], torch.Tensor]
"""`draw(pages_or_rows, numbers)`: a floating-point CPU tensor of that shape."""


def encode_pages(raw: torch.Tensor, layout: PageLayout, draw: Draw) -> None:
    """Write drawn numbers into `raw`, `uint8[pages, stride]`, zeroed pages of `layout` (compact) on the CPU."""
    match layout.content:
        case Numbers(dtype) as numbers:
            count = layout.content_bytes // numbers.item_bytes
            _put(raw, 0, as_bytes(draw(len(raw), count), dtype))
        case State(parts):
            _encode_state(raw, parts, draw)
        case PackedRows():
            _encode_packed(raw, layout, layout.content, draw)
        case _:
            pass  # Zeros: the pages are


def as_bytes(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """`values[n, m]` clamped to the finite range of the number format `dtype` and stored in it: `uint8[n, bytes]`."""
    target: torch.dtype = getattr(torch, dtype)
    most = min(torch.finfo(target).max, torch.finfo(values.dtype).max)
    return values.clamp(-most, most).to(target).contiguous().view(torch.uint8)


def _put(raw: torch.Tensor, offset: int, data: torch.Tensor) -> None:
    raw[:, offset : offset + data.shape[1]].copy_(data)


def _encode_state(raw: torch.Tensor, parts: tuple[TypedPart, ...], draw: Draw) -> None:
    offset = 0
    for part in parts:
        data = as_bytes(draw(len(raw), prod(part.shape)), part.dtype)
        _put(raw, offset, data)
        offset += data.shape[1]


def _encode_packed(raw: torch.Tensor, layout: PageLayout, content: PackedRows, draw: Draw) -> None:
    packed = LAYOUTS[content.layout]
    encoded = packed.encode(draw(len(raw) * layout.rows, packed.numbers))
    for box, data in zip(layout.fields, encoded, strict=True):
        view = box.view(raw.untyped_storage(), int(raw.storage_offset()), raw.stride(0), len(raw), word=1)
        view.copy_(data.view(view.shape))
