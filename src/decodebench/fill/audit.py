"""Proof of a fill: reading back what was written, and checksums of everything that must not change.

Reading back compares every byte of every page with its source again: page by page, by index arithmetic of its own; only
where the rows of a cut block lie is taken from the same geometry that the fill writes by. The checksums cover
the pages of all blocks that the fill does not own, in the layout of each group: KV cache groups share bytes, so a page
of one group is seen through all. Both cost a pass over the bytes, so this is for audits, not for measurements.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch

from decodebench.fill.expected import Expected
from decodebench.fill.group import GroupPages
from decodebench.fill.pages import Pages

BATCH_BYTES = 1 << 24


@torch.inference_mode()
def wrong_blocks(expected: Iterable[Expected]) -> set[int]:
    """Blocks of which some byte is not as expected."""
    wrong: set[int] = set()
    for each in expected:
        at_once = max(1, BATCH_BYTES // max(1, _page_bytes(each.target)))
        for first in range(0, len(each.blocks), at_once):
            blocks = each.blocks[first : first + at_once]
            differs = _integers(each.target.index_select(0, blocks.to(each.target.device)))
            if each.source is not None and each.sources is not None:
                sources = each.sources[first : first + at_once].to(each.source.device)
                differs = differs != _integers(each.source.index_select(0, sources)).to(differs.device)
            found = (differs != 0).flatten(1).any(1)
            wrong.update(blocks.to(found.device)[found].tolist())
    return wrong


class Canaries:
    """Checksums of the pages that nobody may write, taken before a fill and compared after it."""

    def __init__(self, groups: Mapping[int, GroupPages]) -> None:
        largest: dict[tuple[int, int, int], Pages] = {}
        for group in groups.values():
            for pages in group.pages:
                known = largest.setdefault(pages.address, pages)
                if pages.page_bytes > known.page_bytes:
                    largest[pages.address] = pages
        self._pages = list(largest.values())

    @torch.inference_mode()
    def take(self) -> list[torch.Tensor]:
        """A checksum of each block, per distinct storage of pages."""
        return [torch.cat(list(_checksums(pages.page))) for pages in self._pages]

    def changed(self, before: list[torch.Tensor], owned: set[int]) -> tuple[int, int]:
        """Pages outside of the `owned` blocks: how many there are, and how many have changed since `before`."""
        after = self.take()
        unowned = torch.ones(self._pages[0].num_blocks, dtype=torch.bool)
        unowned[list(owned)] = False
        changed = sum(
            int(((old != new) & unowned.to(old.device)).sum()) for old, new in zip(before, after, strict=True)
        )
        return int(unowned.sum()) * len(self._pages), changed


def _checksums(pages: torch.Tensor) -> Iterator[torch.Tensor]:
    """Sum of the words of a page, each times an odd number of its place, modulo 2^64: a swap of words is seen too."""
    at_once = max(1, BATCH_BYTES // max(1, 8 * pages[0].numel()))
    factors: torch.Tensor | None = None
    for first in range(0, len(pages), at_once):
        words = _integers(pages[first : first + at_once]).flatten(1).to(torch.int64)
        if factors is None:
            factors = torch.arange(words.shape[1], device=words.device) * 0x9E3779B97F4A7C1 | 1
        yield (words * factors).sum(1)


def _integers(pages: torch.Tensor) -> torch.Tensor:
    return pages.view(torch.int64) if pages.is_complex() else pages


def _page_bytes(target: torch.Tensor) -> int:
    return target[0].numel() * target.element_size()
