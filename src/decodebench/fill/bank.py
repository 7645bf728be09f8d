"""Fills by copying from a bank: ready-made pages, encoded once per page layout.

Drawing and encoding numbers is tens of times slower than moving bytes, and packed pages cannot be made in place at all.
So all of that happens once, at registration; a fill copies whole pages, at the speed of memory.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch

from decodebench.fill.base import Content
from decodebench.fill.encode import Draw, encode_pages
from decodebench.fill.expected import Expected
from decodebench.fill.pages import LayerPages, Pages, bank_stride
from decodebench.fill.runs import BlockSet, PartialWrite, PreparedWrites
from decodebench.fill.words import word_value

NUMBERS_AT_ONCE = 1 << 22
"""Numbers encoded in one go while a bank is made: bounds the temporaries."""


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """Pages to copy from, on the device of the pages they serve."""

    pages: Pages
    word: int | complex | None
    """Of a single page whose words are all the same: it can be filled instead of copied."""

    @property
    def size(self) -> int:
        return self.pages.num_blocks

    @classmethod
    def encoded(cls, like: Pages, num_pages: int, draw: Draw) -> "Bank":
        """`num_pages` pages that can be copied into `like`, holding drawn numbers."""
        raw = torch.zeros(num_pages, bank_stride(like.page_bytes), dtype=torch.uint8)
        layout = like.layout.compact()
        at_once = max(1, NUMBERS_AT_ONCE // like.page_bytes)
        for first in range(0, num_pages, at_once):
            encode_pages(raw[first : first + at_once], layout, draw)
        word = _only_word(raw[0, : like.page_bytes], like.page.element_size()) if num_pages == 1 else None
        return cls(like.dense_copies(raw.to(like.device)), word)


def _only_word(page: torch.Tensor, word: int) -> int | complex | None:
    words = page.view(-1, word)
    return word_value(bytes(words[0].tolist())) if bool((words == words[0]).all()) else None


class BankContent(Content):
    """A content that copies bank pages. Blocks take consecutive bank pages, round and round, from `first_page` on."""

    def __init__(self) -> None:
        self._banks: dict[Hashable, Bank] = {}
        self._started: dict[Hashable, int] = {}  # where the last write into each storage began

    def prepare(self, layers: Sequence[LayerPages]) -> None:
        kinds = {pages.bank_key(): pages for layer in layers for pages in layer.pieces}
        new = {key: pages for key, pages in kinds.items() if key not in self._banks}
        for key, pages in new.items():
            self._banks[key] = self.make_bank(pages, len(new))

    @abstractmethod
    def make_bank(self, pages: Pages, num_banks: int) -> Bank:
        """The bank for pages like `pages`, one of `num_banks` that are made."""

    @abstractmethod
    def first_page(self, bank: Bank) -> int:
        """The bank page that the first block of a write takes."""

    def write(self, pages: Pages, writes: PreparedWrites) -> int:
        bank = self._banks[pages.bank_key()]
        start = self.first_page(bank)
        self._started[pages.address] = start
        if bank.word is not None:
            fill_blocks(pages.page, bank.word, writes.whole)
        else:
            copy_blocks(pages.page, bank.pages.page, writes.whole, start)
        fill_blocks(pages.page, 0, writes.zero)
        num_bytes = (writes.whole.num_blocks + writes.zero.num_blocks) * pages.page_bytes
        return num_bytes + sum(_write_rows(pages, bank, part, start) for part in writes.partial)

    def expected(self, pages: Pages, writes: PreparedWrites) -> Iterator[Expected]:
        bank = self._banks[pages.bank_key()]
        start = self._started[pages.address]
        yield _copied(pages.page, bank.pages.page, writes.whole, start)
        yield Expected(pages.page, writes.zero.every())
        for part in writes.partial:
            first, end = pages.layout.rows_of(part.first_token, part.end_token, part.block_size)
            for rows, source in zip(pages.rows(first, end), bank.pages.rows(first, end), strict=True):
                yield _copied(rows, source, part.blocks, start)
            for rest in pages.behind(end):
                yield Expected(rest, part.blocks.every())


def _copied(target: torch.Tensor, source: torch.Tensor, blocks: BlockSet, start: int) -> Expected:
    ids = blocks.every()
    return Expected(target, ids, source, (start + torch.arange(len(ids))) % len(source))


def _write_rows(pages: Pages, bank: Bank, part: PartialWrite, start: int) -> int:
    first, end = pages.layout.rows_of(part.first_token, part.end_token, part.block_size)
    for rows, source in zip(pages.rows(first, end), bank.pages.rows(first, end), strict=True):
        copy_blocks(rows, source, part.blocks, start)
    for rest in pages.behind(end):
        fill_blocks(rest, 0, part.blocks)
    return part.blocks.num_blocks * pages.bytes_from(first)


def fill_blocks(target: torch.Tensor, word: int | complex, blocks: BlockSet) -> None:
    """Set every word of `blocks` (axis 0 of `target`)."""
    for first, end in blocks.runs:
        target[first:end].fill_(word)
    if blocks.num_scattered:
        target.index_fill_(0, blocks.scattered, word)


def copy_blocks(target: torch.Tensor, source: torch.Tensor, blocks: BlockSet, start: int) -> None:
    """Copy pages of `source`, from `start` on and round and round, into `blocks` (axis 0 of `target`)."""
    at = start
    for first, end in blocks.runs:
        for done, pages in _consecutive(source, at, end - first):
            target[first + done : first + done + len(pages)].copy_(pages)
        at += end - first
    for done, pages in _consecutive(source, at, blocks.num_scattered):
        target.index_copy_(0, blocks.scattered[done : done + len(pages)], pages)


def _consecutive(source: torch.Tensor, start: int, count: int) -> Iterator[tuple[int, torch.Tensor]]:
    """`count` pages as views of `source`, each view with the number of pages before it; a single page repeats free."""
    size = len(source)
    if size == 1 and count:
        yield 0, source.expand(count, *source.shape[1:])
        return
    done = 0
    while done < count:
        at = (start + done) % size
        pages = source[at : at + count - done]
        yield done, pages
        done += len(pages)
