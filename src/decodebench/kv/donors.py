"""Which donor page each block of a request is filled from, group by group.

A donor is a request that was really prefilled; of every KV cache group a bank keeps the pages that the engine still
held when it finished. Bytes are copied page by page, so a source page must have content wherever the block needs it:

- full attention: the donor's page at the same position in the prompt. Where several donors have it, one is drawn page
  by page. Beyond the donors, whole pages of a drawn donor, in laps that each start at another drawn position.
- sliding and chunked attention: the donor's last pages, so that the last token lies at the same offset in its page if
  both lengths allow it, else one page earlier. Where that reaches behind the donor's oldest page, whole pages again.
- recurrent state: the one page of the final state.
- circular buffer: the ring, and only from a donor of exactly the same length, for its rows hold positions. Else zero.

Draws depend on the seed and the position only, so a request that is filled again takes the same pages.

    >>> from decodebench.kv.writes import PartialBlock
    >>> shape = GroupShape("full_attention", 4)
    >>> donor = DonorPages(donor=7, num_tokens=9, first=0, count=3)
    >>> plan_copies(shape, [3, 5, 6], GroupWrites([3, 5], [PartialBlock(6, 0, 1)]), 9, [donor], seed=0)[1]
    Sources(donors=(7, 7, 7), pages=(0, 1, 2))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.blocks import NULL_BLOCK, GroupShape
from decodebench.kv.writes import GroupWrites, Sources


class TooShort(ValueError):
    """A donor that has no page for a block of the request; the message says what it would need."""


@dataclass(frozen=True, slots=True)
class DonorPages:
    """What the bank holds of one donor in one group: its pages at positions [first, first + count)."""

    donor: int  # number in the bank
    num_tokens: int
    first: int
    count: int

    def whole(self, block_size: int) -> int:
        """How many of the pages are full of tokens, counted from `first`."""
        return max(0, min(self.first + self.count, self.num_tokens // block_size) - self.first)

    def has(self, position: int, end: int, block_size: int) -> bool:
        """Whether the page at `position` is held and has content up to token `end` of it."""
        inside = self.first <= position < self.first + self.count
        return inside and end <= self.num_tokens - position * block_size


def kept_pages(shape: GroupShape, block_ids: Sequence[int], num_tokens: int) -> tuple[int, list[int]]:
    """Of a request that has computed `num_tokens`: the position of the first page a bank keeps, and the block ids.

    `block_ids` is the block table of the group at the finish, blocks that left the window as id 0.
    """
    if shape.kind == "circular_buffer":
        return 0, [block for block in block_ids[:1] if block != NULL_BLOCK]
    end = ceil_div(num_tokens, shape.block_size)
    if shape.kind == "state":
        return end - 1, [block for block in block_ids[end - 1 : end] if block != NULL_BLOCK]
    kept = list(block_ids[:end])
    first = next((len(kept) - back for back, block in enumerate(reversed(kept)) if block == NULL_BLOCK), 0)
    return first, kept[first:]


def plan_copies(
    shape: GroupShape,
    block_ids: Sequence[int],
    writes: GroupWrites,
    total: int,
    donors: Sequence[DonorPages],
    seed: int,
) -> tuple[GroupWrites, Sources]:
    """`writes` with the source of each block that gets content, in the order `whole`, `partial`.

    `block_ids` is the request's block table of the group and `total` the tokens that exist after the fill.

    Raises:
        TooShort: no donor has a page for one of the blocks.
    """
    drawn = donors[Random(seed).randrange(len(donors))]  # of whatever is taken from one donor
    if shape.kind == "circular_buffer":
        if drawn.num_tokens != total or drawn.count != len(writes.zero):
            return writes, Sources()
        return GroupWrites(whole=writes.zero), Sources((drawn.donor,), (0,))
    if not writes.whole and not writes.partial:
        return writes, Sources()
    if shape.kind == "state":
        if not drawn.count:
            raise TooShort("no state of it was kept")
        return writes, Sources((drawn.donor,), (0,))
    places = {block: position for position, block in enumerate(block_ids) if block != NULL_BLOCK}
    needs = [(places[block], shape.block_size) for block in writes.whole]
    needs += [(places[part.block_id], part.end_token) for part in writes.partial]
    if shape.kind == "full_attention":
        chosen = _same_places(shape.block_size, needs, donors, seed)
    else:
        chosen = _last_pages(shape, needs, total, drawn, seed)
    return writes, Sources(tuple(donor for donor, _ in chosen), tuple(page for _, page in chosen))


def _same_places(
    size: int, needs: list[tuple[int, int]], donors: Sequence[DonorPages], seed: int
) -> list[tuple[int, int]]:
    most = max(position for position, _ in needs) + 1
    drawn = [0] * most if len(donors) == 1 else Random(seed).choices(range(len(donors)), k=most)
    laps = _Laps(size, donors, seed)
    chosen = []
    for position, end in needs:
        for turn in range(len(donors)):
            donor = donors[(drawn[position] + turn) % len(donors)]
            if donor.has(position, end, size):
                chosen.append((donor.donor, position - donor.first))
                break
        else:
            chosen.append(laps.page(position, drawn[position]))
    return chosen


def _last_pages(
    shape: GroupShape, needs: list[tuple[int, int]], total: int, donor: DonorPages, seed: int
) -> list[tuple[int, int]]:
    size = shape.block_size
    if shape.kind == "sliding_window" and donor.num_tokens < (needed := min(total, shape.window - 1)):
        raise TooShort(f"{donor.num_tokens} tokens, but a sliding window needs {needed}")
    last, donor_last = (total - 1) // size, (donor.num_tokens - 1) // size
    shift = last - donor_last
    if total - last * size > donor.num_tokens - donor_last * size:
        shift += 1
    laps = _Laps(size, [donor], seed)
    return [
        (donor.donor, position - shift - donor.first)
        if donor.has(position - shift, end, size)
        else laps.page(position, 0)
        for position, end in needs
    ]


class _Laps:
    """Pages full of tokens for positions that no donor has: neighbours of one lap take neighbouring pages."""

    def __init__(self, size: int, donors: Sequence[DonorPages], seed: int) -> None:
        self._size = size
        self._donors = donors
        self._seed = seed
        self._starts: dict[tuple[int, int], int] = {}

    def page(self, position: int, first_choice: int) -> tuple[int, int]:
        for turn in range(len(self._donors)):
            donor = self._donors[(first_choice + turn) % len(self._donors)]
            if whole := donor.whole(self._size):
                return donor.donor, (position + self._start(position // whole, whole)) % whole
        tokens = max(donor.num_tokens for donor in self._donors)
        raise TooShort(f"{tokens} tokens, which is no whole page of {self._size} tokens in one of the groups")

    def _start(self, lap: int, whole: int) -> int:
        start = self._starts.get((lap, whole))
        if start is None:
            start = Random(self._seed * 1_000_003 + lap).randrange(whole)
            self._starts[lap, whole] = start
        return start
