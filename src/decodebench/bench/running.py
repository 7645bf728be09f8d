"""A server that answers, and how a run comes by one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from decodebench.bench.client import Target
from decodebench.bench.facts import EngineFacts
from decodebench.report.progress import Progress
from decodebench.results.provenance import Engine


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. `check` raises `EngineFailed` once it has died."""

    target: Target
    check: Callable[[], None]
    recipe: str | None = None
    weights: str | None = None
    shims: tuple[str, ...] = ()
    hma_reason: str | None = None
    is_ours: bool = True  # it is stopped when we are done

    def record(self, facts: EngineFacts) -> Engine:
        """The engine as a result keeps it: what it says of itself, and what we know of its start."""
        return facts.record(
            recipe=self.recipe, weights=self.weights, shims=self.shims, hma_reason=self.hma_reason
        )


Launch = Callable[[Progress], AbstractContextManager[Running]]
"""Starts (or attaches to) the server and stops it at the end of the block."""
