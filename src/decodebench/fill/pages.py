"""The pages of a layer, bound to their storage: what a fill writes through.

`LayerPages.of` is called once a layer, at registration; a fill then only indexes views that already exist. The views
are byte-exact: between them they cover every byte that belongs to the layer and none that does not, whatever the
interleaving of layers, heads, kernel blocks and padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from decodebench.fill.container import Piece, read_container
from decodebench.fill.layout import PageLayout
from decodebench.fill.words import WIDEST
from decodebench.kv.content import PageContent


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Pages of one storage. Every view has blocks as axis 0 and wide words (`words.py`) as elements."""

    layout: PageLayout
    num_blocks: int
    address: tuple[int, int, int]  # of the storage, of block 0 in it, bytes from block to block
    page: torch.Tensor  # [block, ...]: every owned byte
    fields: tuple[torch.Tensor, ...]  # [block, kernel block, row, ...]: the rows
    padding: torch.Tensor | None  # [block, bytes]

    @classmethod
    def of(cls, piece: Piece, num_blocks: int, like: "Pages | None" = None) -> "Pages":
        """Bind `piece`; with `like`, in the words of those pages, so that the two can be copied into each other."""
        storage, base, stride, layout = piece.storage, piece.base, piece.block_stride, piece.layout
        boxes = [layout.page, *layout.fields, *([layout.padding] if layout.padding else [])]
        if like is None:
            words = [box.word(base, stride) for box in boxes]
        else:
            theirs = [like.page, *like.fields, *([like.padding] if like.padding is not None else [])]
            words = [view.element_size() for view in theirs]
        views = [
            box.view(storage, base, stride, num_blocks, word) for box, word in zip(boxes, words, strict=True)
        ]
        fields = tuple(views[1 : 1 + len(layout.fields)])
        padding = views[-1] if layout.padding else None
        return cls(layout, num_blocks, (storage.data_ptr(), base, stride), views[0], fields, padding)

    @property
    def page_bytes(self) -> int:
        """Bytes a page owns."""
        return self.layout.page.num_bytes

    def bytes_from(self, row: int) -> int:
        """Bytes of a page from `row` on, the padding included."""
        row_bytes = self.layout.content_bytes // self.layout.rows
        return self.page_bytes - row * row_bytes

    def rows(self, first: int, end: int) -> Iterator[torch.Tensor]:
        """Rows [first, end) of every block, as views [block, ...] that together are all of them."""
        for field in self.fields:
            for box in self.layout.row_boxes(first, end):
                yield field[:, *box]

    def behind(self, row: int) -> Iterator[torch.Tensor]:
        """The same of the rows from `row` on and the padding."""
        yield from self.rows(row, self.layout.rows)
        if self.padding is not None:
            yield self.padding

    @property
    def device(self) -> torch.device:
        return self.page.device

    def bank_key(self) -> tuple[PageLayout, tuple[torch.dtype, ...], torch.device]:
        """Equal for pages that can be filled from the same bank."""
        return self.layout, tuple(view.dtype for view in (self.page, *self.fields)), self.device

    def dense_copies(self, raw: torch.Tensor) -> "Pages":
        """Pages of the same layout over `raw`, `uint8[num_pages, bank_stride(page_bytes)]`, aligned for wide words."""
        base = int(raw.storage_offset())
        piece = Piece(raw.untyped_storage(), base, raw.stride(0), self.layout.compact())
        return Pages.of(piece, raw.shape[0], like=self)


def bank_stride(page_bytes: int) -> int:
    """Bytes from page to page of a bank: aligned for the widest word."""
    return -(-page_bytes // WIDEST) * WIDEST


@dataclass(frozen=True, slots=True, eq=False)
class LayerPages:
    """All pages of one layer."""

    layer: str
    pieces: tuple[Pages, ...]

    @classmethod
    def of(
        cls,
        layer: str,
        cache: object,
        *,
        num_blocks: int,
        page_bytes: int,
        rows_per_block: int,
        content: PageContent,
    ) -> "LayerPages":
        """The pages of `layer` in `cache`, the object that the engine registers for it.

        `page_bytes` is the padded page size of the layer's spec; padding behind the content belongs to the page where
        the block stride has room for it. `rows_per_block` counts the stored states of a manager block (1 for a
        recurrent state or a circular buffer). Raises ValueError, naming the layer, for what cannot be read as pages.
        """
        pieces = read_container(
            layer,
            cache,
            num_blocks=num_blocks,
            page_bytes=page_bytes,
            rows_per_block=rows_per_block,
            content=content,
        )
        return cls(layer, tuple(Pages.of(piece, num_blocks) for piece in pieces))
