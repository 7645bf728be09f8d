"""Which blocks of one KV cache group a fill writes, and which rows of them.

A *row* is one stored state of a page: one token for plain attention, `tokens_per_state` tokens for compressed MLA,
the whole page for a recurrent state or a circular buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartialBlock:
    """A block of which only some rows get content.

    Rows below `first_row` are locally computed and stay untouched; rows in [first_row, end_row) get content; rows from
    `end_row` on, and the padding of the page, are zeroed.
    """

    block_id: int
    first_row: int
    end_row: int


@dataclass(frozen=True, slots=True)
class GroupWrites:
    """All blocks of one group that one fill writes, each exactly once."""

    whole: Sequence[int] = ()  # ids of blocks whose every row gets content
    partial: Sequence[PartialBlock] = field(default=())
    zero: Sequence[int] = ()  # ids of blocks that are zeroed whole (scratch of state groups)

    @property
    def num_blocks(self) -> int:
        return len(self.whole) + len(self.partial) + len(self.zero)
