"""Where the bytes of one page lie: the geometry of a page, apart from any storage.

A page is described relative to its first byte, so that one description serves the pages of the engine's KV cache and
the pages of a bank that a fill copies from.
"""

from dataclasses import dataclass
from math import prod

import torch

from decodebench.fill.words import widest_word, word_dtype
from decodebench.kv.arithmetic import round_up
from decodebench.kv.content import Numbers, PageContent


@dataclass(frozen=True, slots=True)
class ByteBox:
    """Bytes of a page as a strided box; sizes, strides and offset in bytes, the last axis contiguous."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.strides[-1] == 1, f"the last axis of a byte box is contiguous, got strides {self.strides}"

    @property
    def num_bytes(self) -> int:
        return prod(self.sizes)

    def word(self, base: int, block_stride: int) -> int:
        """Bytes of the widest word this box can be read in, once it starts at `base` and repeats every block."""
        outer = (s for n, s in zip(self.sizes[:-1], self.strides[:-1], strict=True) if n > 1)
        return widest_word(base + self.offset, block_stride, self.sizes[-1], *outer)

    def view(
        self, storage: torch.UntypedStorage, base: int, block_stride: int, num_blocks: int, word: int
    ) -> torch.Tensor:
        """This box of every block: a tensor of `word`-byte words, shape `(num_blocks, *sizes)`."""
        strides = (
            block_stride,
            *(s if n > 1 else word for n, s in zip(self.sizes, self.strides, strict=True)),
        )
        return torch.empty(0, dtype=word_dtype(word), device=storage.device).set_(
            storage,
            (base + self.offset) // word,
            (num_blocks, *self.sizes[:-1], self.sizes[-1] // word),
            (*(s // word for s in strides[:-1]), 1),
        )


@dataclass(frozen=True, slots=True)
class PageLayout:
    """One page: which bytes it owns, which of them belong to which row.

    A page consists of `kernel_blocks` equal kernel blocks (1 unless the attention backend splits the manager's block)
    of `kernel_rows` rows each.
    """

    content: PageContent
    kernel_blocks: int
    kernel_rows: int
    page: ByteBox  # every byte the page owns, padding included
    fields: tuple[ByteBox, ...]  # the rows, axes (kernel block, row, ..., bytes): all but the padding
    padding: ByteBox | None = None

    @property
    def rows(self) -> int:
        return self.kernel_blocks * self.kernel_rows

    @property
    def in_rows(self) -> bool:
        """Whether the bytes of a row are that row's alone; else only kernel blocks are written, each whole."""
        return not isinstance(self.content, Numbers) or self.content.in_rows

    @property
    def is_dense(self) -> bool:
        """Whether the page is one range of bytes (not so where heads lie outside the blocks)."""
        return len(self.page.sizes) == 1

    @property
    def content_bytes(self) -> int:
        return self.page.num_bytes - (self.padding.num_bytes if self.padding else 0)

    def compact(self) -> "PageLayout":
        """The same page as one range of bytes: itself if it is dense, else its box in row-major order."""
        if self.is_dense:
            return self
        sizes = self.page.sizes
        box = ByteBox(0, sizes, tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes))))
        return PageLayout(self.content, self.kernel_blocks, self.kernel_rows, box, (box,))

    def rows_of(self, first_token: int, end_token: int, block_size: int) -> tuple[int, int]:
        """Tokens of a block of `block_size` as rows: from the first not wholly below, to the last wholly within.

        Where a kernel block does not store its rows one by one, they are those of all kernel blocks touched.

        Raises:
            ValueError: the first of these kernel blocks holds tokens below, which would be overwritten.
        """
        first, end = first_token * self.rows // block_size, end_token * self.rows // block_size
        if self.in_rows:
            return first, end
        if first % self.kernel_rows:
            raise ValueError(
                f"tokens {first_token} to {end_token} of a block of {block_size} cannot be filled beside computed "
                f"ones: this attention backend mixes the rows of {self.kernel_rows} tokens; let the computed tokens "
                "end with a block"
            )
        return first, round_up(end, self.kernel_rows)

    def row_boxes(self, first: int, end: int) -> list[tuple[slice, slice]]:
        """Rows [first, end) as at most three (kernel blocks, rows) rectangles of a field's first two axes."""
        if first >= end:
            return []
        head, head_row = divmod(first, self.kernel_rows)
        tail, tail_row = divmod(end, self.kernel_rows)
        if head == tail:
            return [(slice(head, head + 1), slice(head_row, tail_row))]
        boxes = []
        if head_row:
            boxes.append((slice(head, head + 1), slice(head_row, self.kernel_rows)))
            head += 1
        if head < tail:
            boxes.append((slice(head, tail), slice(0, self.kernel_rows)))
        if tail_row:
            boxes.append((slice(tail, tail + 1), slice(0, tail_row)))
        return boxes
