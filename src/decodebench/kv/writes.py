"""Which blocks of one KV cache group a fill writes, and which part of them.

Positions inside a block are counted in *tokens*, because the layers of one group may store a different number of
rows for the same tokens: compressed MLA keeps one state per 4 or 128 tokens, its neighbours one per token. Each layer
turns tokens into its own rows (`rows_per_block` of `block_size` tokens).
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartialBlock:
    """A block of which only some rows get content.

    Rows that lie wholly below `first_token` are locally computed and stay untouched; rows up to `end_token` get
    content (a row that `end_token` cuts does not: the engine writes it when its last token is computed); the rows
    behind them, and the padding of the page, are zeroed. Where a layer mixes the rows of a kernel block
    (`Numbers.in_rows`), each kernel block up to `end_token` gets content as a whole. A block of which nothing is
    computed locally takes the whole page of a donor (`fill/donor.py`).
    """

    block_id: int
    first_token: int
    end_token: int


@dataclass(frozen=True, slots=True)
class GroupWrites:
    """All blocks of one group that one fill writes, each exactly once."""

    whole: Sequence[int] = ()  # ids of blocks whose every row gets content
    partial: Sequence[PartialBlock] = ()
    zero: Sequence[int] = ()  # ids of blocks that are zeroed whole (scratch of states, circular buffers)

    @property
    def num_blocks(self) -> int:
        return len(self.whole) + len(self.partial) + len(self.zero)

    @property
    def block_ids(self) -> list[int]:
        return [*self.whole, *(part.block_id for part in self.partial), *self.zero]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the content of a group's blocks is copied from: for each of [*whole, *partial], in that order, a donor's
    number in the bank and one of the pages that the bank holds of it in this group."""

    donors: Sequence[int] = ()
    pages: Sequence[int] = ()
