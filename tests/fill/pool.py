"""A poisoned storage and an independent account of which of its bytes a block of a layer owns."""

from dataclasses import dataclass

import torch

POISON = 0xFF  # NaN in every float format here but e5m2-like ones, where it is NaN as well


@dataclass
class Layer:
    """One layer's cache as an engine would hand it over: views into a byte storage, blocks (or kernel blocks) first."""

    raw: torch.Tensor  # uint8, all bytes of the storage
    views: list[torch.Tensor]
    num_blocks: int
    padding: tuple[int, int, int] | None = None  # offset in the page, bytes, block stride

    def owned(self, block: int) -> torch.Tensor:
        """Mask over `raw`: bytes of `block`, found by marking them through the very views on a copy of the storage."""
        marks = torch.zeros_like(self.raw)
        for view in self.views:
            item, ratio = view.element_size(), view.shape[0] // self.num_blocks
            size = (*view.shape, item)
            strides = (*(s * item for s in view.stride()), 1)
            as_bytes = marks.as_strided(size, strides, view.storage_offset() * item)
            as_bytes[block * ratio : (block + 1) * ratio] = 1
        if self.padding is not None:
            offset, count, stride = self.padding
            marks[offset + block * stride :][:count] = 1
        return marks.bool()


def poisoned(num_bytes: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.full((num_bytes,), POISON, dtype=torch.uint8, device=device)


def typed(
    raw: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
):
    """A view of `raw` in elements of `dtype`; strides and offset in elements."""
    return raw.view(dtype).as_strided(shape, strides, offset)
