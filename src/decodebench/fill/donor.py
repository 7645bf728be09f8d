"""Fills by copying pages from donors: requests that were really prefilled.

`DonorBank.keep` copies a donor's pages of every group into host memory, as bytes; `DonorBank.write` copies such pages
into other requests' blocks. Bytes need no knowledge of a layout, so every dtype, packing and state is copied alike.
A block that the request fills only up to some token takes the whole page too: what lies behind is of the donor's later
tokens, or as clean as the engine left the donor's own last page. Only a block whose first tokens are computed here
already is copied by rows, for which `PageLayout` has the geometry.

NOTE: rows are not always where a shape puts them: vLLM's CPU attention keeps the keys of a block in an order of its own
(0.32; found by self-donor equality, which failed for cut blocks copied by rows).

Speed: neighbouring blocks that take neighbouring pages are one slice copy per layer. All others go through a staging
buffer that stays in the CPU's cache, one gather and one scatter for many pages; no loop over single pages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from decodebench.fill.bank import fill_blocks
from decodebench.fill.group import GroupPages, Written
from decodebench.fill.pages import Pages, bank_stride
from decodebench.fill.runs import BlockSet, check_ids, token_range
from decodebench.fill.transfer import PagePairs, Staging, copy_pages
from decodebench.kv.writes import GroupWrites, Sources


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A donor's pages of one group: as many views as the group has distinct page storages, pages on axis 0."""

    pages: tuple[Pages, ...]
    num_pages: int
    num_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class RowCopies:
    """Blocks that take rows [first_token, end_token) of one donor's pages; the rows behind become zero."""

    donor: int
    first_token: int
    end_token: int
    pairs: PagePairs
    blocks: BlockSet


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCopies:
    """What one fill copies in one group, prepared once for all its layers."""

    whole: tuple[tuple[int, PagePairs], ...]  # donor -> blocks and pages
    partial: tuple[RowCopies, ...]
    zero: BlockSet
    num_blocks: int


class DonorBank:
    """The donors of one worker, in host memory (pinned where the KV cache is on a GPU).

    Used by one thread at a time. Numbers of donors and of their pages are the scheduler half's, which also keeps the
    size limit: this side holds what it is told to.
    """

    def __init__(self, groups: dict[int, GroupPages]) -> None:
        self._groups = groups
        self._held: dict[int, dict[int, Held]] = {}  # donor -> group -> its pages
        self._staging = Staging()

    @property
    def num_bytes(self) -> int:
        return sum(held.num_bytes for groups in self._held.values() for held in groups.values())

    @torch.inference_mode()
    def keep(self, donor: int, blocks: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Copy `blocks` of each group into the bank as the pages of `donor`; returns the pages held per group."""
        held = {group: self._copy_out(self._groups[group], ids) for group, ids in enumerate(blocks) if ids}
        self._held[donor] = held
        return tuple(held[group].num_pages if group in held else 0 for group in range(len(blocks)))

    def drop(self, donor: int) -> None:
        """Free a donor's pages; one that is not held is no error (its copy may have failed)."""
        self._held.pop(donor, None)

    def prepare(self, group: int, fills: Iterable[tuple[GroupWrites, Sources]]) -> PreparedCopies:
        """Merge the copies of several requests into one group; of a block named twice the first counts.

        Raises:
            ValueError: the null block, an id, a token range or a source page out of bounds, or an unknown donor.
        """
        pages = self._groups[group]
        whole: dict[int, tuple[int, int]] = {}
        partial: dict[int, tuple[int, int, int, int]] = {}  # block -> (first, end) token, donor, page
        zero: set[int] = set()
        for writes, sources in fills:
            taken = list(zip(sources.donors, sources.pages, strict=True))
            for block, source in zip(writes.whole, taken, strict=False):
                whole.setdefault(block, source)
            for part, source in zip(writes.partial, taken[len(writes.whole) :], strict=True):
                first, end = token_range(part, pages.block_size)
                if first == 0:
                    whole.setdefault(part.block_id, source)
                else:
                    partial.setdefault(part.block_id, (first, end, *source))
            zero.update(writes.zero)
        partial = {block: source for block, source in partial.items() if block not in whole}
        zero -= whole.keys() | partial.keys()
        check_ids(whole.keys() | partial.keys() | zero, pages.pages[0].num_blocks)
        return PreparedCopies(
            tuple(
                (donor, self._pairs(group, donor, pairs)) for donor, pairs in _by_donor(whole.items()).items()
            ),
            tuple(self._row_copies(group, partial)),
            self._block_set(group, zero),
            len(whole) + len(partial) + len(zero),
        )

    @torch.inference_mode()
    def write(self, group: int, copies: PreparedCopies) -> Written:
        """Copy into every layer of `group`, queued on the current stream."""
        pages = self._groups[group].pages
        num_bytes = sum(self._write(group, number, each, copies) for number, each in enumerate(pages))
        return Written(copies.num_blocks * len(pages), num_bytes)

    def _copy_out(self, group: GroupPages, blocks: Sequence[int]) -> Held:
        strides = [bank_stride(pages.page_bytes) for pages in group.pages]
        pinned = group.pages[0].device.type == "cuda"
        raw = torch.empty(len(blocks) * sum(strides), dtype=torch.uint8, pin_memory=pinned)
        views, offset = [], 0
        for pages, stride in zip(group.pages, strides, strict=True):
            end = offset + len(blocks) * stride
            views.append(pages.dense_copies(raw[offset:end].view(len(blocks), stride)))
            offset = end
        check_ids(set(blocks), group.pages[0].num_blocks)
        pairs = PagePairs.of(range(len(blocks)), blocks, _most_bytes(group.pages), raw.device, group.device)
        for held, pages in zip(views, group.pages, strict=True):
            copy_pages(held.page, pages.page, pairs, self._staging)
        return Held(tuple(views), len(blocks), raw.nbytes)

    def _write(self, group: int, number: int, pages: Pages, copies: PreparedCopies) -> int:
        for donor, pairs in copies.whole:
            copy_pages(pages.page, self._held[donor][group].pages[number].page, pairs, self._staging)
        fill_blocks(pages.page, 0, copies.zero)
        whole = sum(pairs.num_pages for _, pairs in copies.whole) + copies.zero.num_blocks
        num_bytes = whole * pages.page_bytes
        return num_bytes + sum(self._write_rows(group, number, pages, rows) for rows in copies.partial)

    def _write_rows(self, group: int, number: int, pages: Pages, rows: RowCopies) -> int:
        held = self._held[rows.donor][group].pages[number]
        layout = pages.layout
        block_size = self._groups[group].block_size
        first = rows.first_token * layout.rows // block_size
        end = rows.end_token * layout.rows // block_size
        for field, source in zip(pages.fields, held.fields, strict=True):
            for box in layout.row_boxes(first, end):
                copy_pages(field[:, *box], source[:, *box], rows.pairs, self._staging)
            for box in layout.row_boxes(end, layout.rows):
                fill_blocks(field[:, *box], 0, rows.blocks)
        if pages.padding is not None:
            fill_blocks(pages.padding, 0, rows.blocks)
        padding_bytes = pages.page_bytes - layout.content_bytes
        return rows.pairs.num_pages * ((layout.rows - first) * pages.row_bytes + padding_bytes)

    def _row_copies(self, group: int, partial: dict[int, tuple[int, int, int, int]]) -> Iterable[RowCopies]:
        alike: dict[tuple[int, int, int], dict[int, int]] = {}
        for block, (first, end, donor, page) in partial.items():
            alike.setdefault((first, end, donor), {})[block] = page
        for (first, end, donor), pairs in alike.items():
            yield RowCopies(
                donor, first, end, self._pairs(group, donor, pairs), self._block_set(group, pairs)
            )

    def _pairs(self, group: int, donor: int, pairs: dict[int, int]) -> PagePairs:
        held = self._held.get(donor, {}).get(group)
        if held is None:
            raise ValueError(f"donor {donor} of the bank holds no pages of KV cache group {group}")
        if not 0 <= min(pairs.values()) <= max(pairs.values()) < held.num_pages:
            raise ValueError(
                f"pages {min(pairs.values())} to {max(pairs.values())} of donor {donor} cannot be copied: the bank "
                f"holds {held.num_pages} pages of it in KV cache group {group}"
            )
        pages = self._groups[group]
        return PagePairs.of(
            list(pairs), list(pairs.values()), _most_bytes(pages.pages), pages.device, held.pages[0].device
        )

    def _block_set(self, group: int, blocks: Iterable[int]) -> BlockSet:
        pages = self._groups[group]
        return BlockSet.of(set(blocks), pages.device, _most_bytes(pages.pages))


def _most_bytes(pages: Sequence[Pages]) -> int:
    return max(each.page_bytes for each in pages)


def _by_donor(whole: Iterable[tuple[int, tuple[int, int]]]) -> dict[int, dict[int, int]]:
    donors: dict[int, dict[int, int]] = {}
    for block, (donor, page) in whole:
        donors.setdefault(donor, {})[block] = page
    return donors
