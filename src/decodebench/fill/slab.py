"""Host memory for donors' pages of one KV cache group: one tensor a layer, so that pages of all donors are gathered at
once. Donors take ranges of slots; a slab without room grows by half and moves, which only the donor phase sees."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from decodebench.fill.pages import Pages, bank_stride


@dataclass(slots=True, eq=False)
class Slab:
    """Slots, each with room for one page of every layer of a group.

    `pages` are views of the slots like those of the group's own pages, layer by layer; they change when it grows.
    """

    like: Sequence[Pages]  # of the group
    pinned: bool
    pages: tuple[Pages, ...] = ()
    num_slots: int = 0
    _raw: list[torch.Tensor] = field(default_factory=list)  # uint8[slots, bytes], layer by layer
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)  # donor -> its slots [first, end)

    @property
    def num_bytes(self) -> int:
        """Bytes of the slots that donors have."""
        stride = sum(bank_stride(pages.page_bytes) for pages in self.like)
        return stride * sum(end - first for first, end in self._taken.values())

    def slots(self, donor: int) -> range | None:
        """The slots of a donor's pages, in the order of the pages."""
        taken = self._taken.get(donor)
        return range(*taken) if taken is not None else None

    def take(self, donor: int, count: int) -> range:
        """Reserve slots, growing where there is no gap of that size."""
        first = 0
        for start, end in sorted(self._taken.values()):
            if start - first >= count:
                break
            first = end
        if first + count > self.num_slots:
            self._grow(first + count)
        self._taken[donor] = (first, first + count)
        return range(first, first + count)

    def give_back(self, donor: int) -> None:
        """Free a donor's slots; the memory goes back with the last donor."""
        self._taken.pop(donor, None)
        if not self._taken:
            self._raw, self.pages, self.num_slots = [], (), 0

    def _grow(self, least: int) -> None:
        slots = max(least, self.num_slots + self.num_slots // 2)
        raw = [
            torch.empty(slots, bank_stride(pages.page_bytes), dtype=torch.uint8, pin_memory=self.pinned)
            for pages in self.like
        ]
        for old, new in zip(self._raw, raw, strict=False):
            new[: self.num_slots].copy_(old)
        self._raw, self.num_slots = raw, slots
        self.pages = tuple(pages.dense_copies(each) for pages, each in zip(self.like, raw, strict=True))
