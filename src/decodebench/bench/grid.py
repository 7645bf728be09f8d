"""The grid of a run: every batch size at every context length."""

from collections.abc import Sequence
from dataclasses import dataclass

from decodebench.report.units import count


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One coordinate. `index` names the point in results; the batch is per data-parallel rank."""

    index: int
    batch_size: int
    context_len: int  # tokens

    def __str__(self) -> str:
        return f"batch {self.batch_size}, context {count(self.context_len)}"


def grid(batch_sizes: Sequence[int], context_lens: Sequence[int]) -> tuple[GridPoint, ...]:
    """Points in the order of the table: context by context, batches ascending as given; doubles are kept once."""
    pairs = dict.fromkeys((batch, context) for context in context_lens for batch in batch_sizes)
    return tuple(GridPoint(index, batch, context) for index, (batch, context) in enumerate(pairs))
