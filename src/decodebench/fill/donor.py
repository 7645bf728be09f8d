"""Fills by copying pages from donors: requests that were really prefilled.

`DonorBank.keep` copies a donor's pages of every group into host memory, as bytes; `DonorBank.write` copies such pages
into other requests' blocks. Bytes need no knowledge of a layout, so every dtype, packing and state is copied alike.
A block that the request fills only up to some token takes the whole page too: what lies behind is of the donor's later
tokens, or as clean as the engine left the donor's own last page. Only a block whose first tokens are computed here
already is copied by rows, for which `PageLayout` has the geometry.

Speed: neighbouring blocks that take neighbouring pages are one slice copy per layer; neighbouring blocks that take any
pages are one gather into place; what is left goes through a staging buffer. There is no loop over single pages.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from decodebench.fill.bank import fill_blocks
from decodebench.fill.expected import Expected
from decodebench.fill.group import GroupPages, Written
from decodebench.fill.pages import Pages
from decodebench.fill.runs import BlockSet, check_ids, distinct, token_range
from decodebench.fill.slab import Slab
from decodebench.fill.transfer import PagePairs, Staging, copy_pages
from decodebench.kv.writes import GroupWrites, Sources


@dataclass(frozen=True, slots=True, eq=False)
class RowCopies:
    """Blocks that take rows [first_token, end_token) of their pages; the rows behind become zero."""

    first_token: int
    end_token: int
    pairs: PagePairs
    blocks: BlockSet


@dataclass(frozen=True, slots=True, eq=False)
class PreparedCopies:
    """What one fill copies in one group, prepared once for all its layers."""

    whole: PagePairs
    partial: tuple[RowCopies, ...]
    zero: BlockSet
    num_blocks: int


class DonorBank:
    """The donors of one worker, in host memory (pinned where the KV cache is on a GPU).

    Used by one thread at a time. Numbers of donors and of their pages are the scheduler half's, which also keeps the
    size limit: this side holds what it is told to.
    """

    def __init__(self, groups: Mapping[int, GroupPages]) -> None:
        self._groups = groups
        self._slabs: dict[int, Slab] = {}
        self._staging = Staging()

    @property
    def num_bytes(self) -> int:
        return sum(slab.num_bytes for slab in self._slabs.values())

    @torch.inference_mode()  # the engine's tensors may be inference tensors, read from a thread of ours
    def keep(self, donor: int, blocks: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Copy `blocks` of each group into the bank as the pages of `donor`; returns the pages held per group.

        Raises:
            ValueError: the null block or an id out of bounds; nothing is held then.
        """
        for group, ids in enumerate(blocks):
            check_ids(ids, self._groups[group].pages[0].num_blocks if ids else 1)
        for group, ids in enumerate(blocks):
            if ids:
                self._copy_out(group, donor, ids)
        return tuple(len(ids) for ids in blocks)

    def drop(self, donor: int) -> None:
        """Free a donor's pages; one that is not held is no error (its copy may have failed)."""
        for slab in self._slabs.values():
            slab.give_back(donor)

    def prepare(self, group: int, fills: Iterable[tuple[GroupWrites, Sources]]) -> PreparedCopies:
        """Merge the copies of several requests into one group; of a block named twice the first counts.

        Raises:
            ValueError: the null block, an id, a token range or a source page out of bounds, or an unknown donor.
        """
        pages = self._groups[group]
        whole: dict[int, int] = {}  # block -> slot
        partial: dict[tuple[int, int], dict[int, int]] = {}  # (first, end) token -> the same
        zero: set[int] = set()
        for writes, sources in reversed(list(fills)):  # the first is the last to be entered
            slots = self._slots(group, sources)
            whole.update(zip(writes.whole, slots, strict=False))
            for part, slot in zip(writes.partial, slots[len(writes.whole) :], strict=True):
                first, end = token_range(part, pages.block_size)
                same = whole if first == 0 else partial.setdefault((first, end), {})
                same[part.block_id] = slot
            zero.update(writes.zero)
        named = whole.keys() | set().union(*partial.values())
        check_ids(named | zero, pages.pages[0].num_blocks)
        return PreparedCopies(
            self._pairs(group, whole),
            tuple(
                RowCopies(first, end, self._pairs(group, blocks), self._block_set(group, blocks))
                for (first, end), blocks in partial.items()
            ),
            self._block_set(group, zero - named),
            len(named | zero),
        )

    @torch.inference_mode()
    def write(self, group: int, copies: PreparedCopies) -> Written:
        """Copy into every layer of `group`, queued on the current stream."""
        pages = self._groups[group].pages
        held = self._slabs[group].pages if group in self._slabs else pages  # nothing is held: only zeros
        num_bytes = sum(self._write(group, *each, copies) for each in zip(pages, held, strict=True))
        return Written(copies.num_blocks * len(pages), num_bytes)

    def expected(self, group: int, copies: PreparedCopies) -> Iterator[Expected]:
        """What the last `write` of these copies must have left; for audits."""
        pages = self._groups[group].pages
        held = self._slabs[group].pages if group in self._slabs else pages
        for ours, theirs in zip(pages, held, strict=True):
            yield _copied(ours.page, theirs.page, copies.whole)
            yield Expected(ours.page, copies.zero.every())
            for rows in copies.partial:
                yield from self._expected_rows(group, ours, theirs, rows)

    def _expected_rows(self, group: int, ours: Pages, theirs: Pages, rows: RowCopies) -> Iterator[Expected]:
        first, end = ours.layout.rows_of(rows.first_token, rows.end_token, self._groups[group].block_size)
        for target, source in zip(ours.rows(first, end), theirs.rows(first, end), strict=True):
            yield _copied(target, source, rows.pairs)
        for rest in ours.behind(end):
            yield Expected(rest, rows.blocks.every())

    def _copy_out(self, group: int, donor: int, blocks: Sequence[int]) -> None:
        pages = self._groups[group]
        slab = self._slabs.setdefault(group, Slab(pages.pages, pinned=pages.device.type == "cuda"))
        slots = slab.take(donor, len(blocks))
        pairs = PagePairs.of(dict(zip(slots, blocks, strict=True)), pages.page_bytes, _HOST, pages.device)
        for held, each in zip(slab.pages, pages.pages, strict=True):
            copy_pages(held.page, each.page, pairs, self._staging)

    def _write(self, group: int, pages: Pages, held: Pages, copies: PreparedCopies) -> int:
        copy_pages(pages.page, held.page, copies.whole, self._staging)
        fill_blocks(pages.page, 0, copies.zero)
        num_bytes = (copies.whole.num_pages + copies.zero.num_blocks) * pages.page_bytes
        block_size = self._groups[group].block_size
        return num_bytes + sum(self._write_rows(block_size, pages, held, rows) for rows in copies.partial)

    def _write_rows(self, block_size: int, pages: Pages, held: Pages, rows: RowCopies) -> int:
        first, end = pages.layout.rows_of(rows.first_token, rows.end_token, block_size)
        for target, source in zip(pages.rows(first, end), held.rows(first, end), strict=True):
            copy_pages(target, source, rows.pairs, self._staging)
        for rest in pages.behind(end):
            fill_blocks(rest, 0, rows.blocks)
        return rows.pairs.num_pages * pages.bytes_from(first)

    def _slots(self, group: int, sources: Sources) -> list[int]:
        ranges = {donor: self._range(group, donor) for donor in set(sources.donors)}
        pages = sources.pages
        fewest = min(map(len, ranges.values()), default=0)
        if pages and not 0 <= min(pages) <= max(pages) < fewest:
            self._check_pages(group, sources, ranges)
        starts = {donor: slots.start for donor, slots in ranges.items()}
        return [starts[donor] + page for donor, page in zip(sources.donors, pages, strict=True)]

    def _check_pages(self, group: int, sources: Sources, ranges: Mapping[int, range]) -> None:
        for donor, page in zip(sources.donors, sources.pages, strict=True):
            if not 0 <= page < len(ranges[donor]):
                raise ValueError(
                    f"page {page} of donor {donor} cannot be copied: the bank holds {len(ranges[donor])} pages of it "
                    f"in KV cache group {group}"
                )

    def _range(self, group: int, donor: int) -> range:
        slots = self._slabs[group].slots(donor) if group in self._slabs else None
        if slots is None:
            raise ValueError(f"donor {donor} of the bank holds no pages of KV cache group {group}")
        return slots

    def _pairs(self, group: int, slots: Mapping[int, int]) -> PagePairs:
        pages = self._groups[group]
        return PagePairs.of(slots, pages.page_bytes, pages.device, _HOST)

    def _block_set(self, group: int, blocks: Iterable[int]) -> BlockSet:
        pages = self._groups[group]
        return BlockSet.of(distinct([*blocks]), pages.device, pages.page_bytes)


def _copied(target: torch.Tensor, source: torch.Tensor, pairs: PagePairs) -> Expected:
    targets, sources = pairs.every()
    return Expected(target, targets, source, sources)


_HOST = torch.device("cpu")
