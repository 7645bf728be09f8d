"""When a point has enough repeats, and in which order points take turns.

Precision is looked at after 5, 8, 12, 18, 27, 40, ... repeats (each half as many again), not after every one:
every look is another chance to stop on a sample that is precise by luck. `interval.py` pays for the looks.

A look may stop only after `MIN_STEPS` window steps in all. Whether one step in a hundred is ten times slower
decides the mean (9 %), and a sample that has seen none of them looks perfectly precise: with 160 steps, five
windows of 32, one run in five sees none and stops; with 384 steps it is 2 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from decodebench.bench.stats import Repeat, StepTime
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

Point = TypeVar("Point")

FIRST_LOOK = FEWEST_FOR_INTERVAL
MIN_STEPS = 384


@dataclass(frozen=True, slots=True)
class Stopping:
    """Stop at the first look with a relative half-width of at most `precision`, at the latest after `max_repeats`."""

    precision: float = 0.02
    max_repeats: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.precision < 1:
            raise ValueError(f"--precision {self.precision} is not between 0 and 1: 0.02 asks for 2 %")
        if self.max_repeats < FIRST_LOOK:
            raise ValueError(
                f"--max-repeats {self.max_repeats} is too few: at least {FIRST_LOOK} repeats are needed"
            )

    def looks(self) -> Iterator[int]:
        """5, 8, 12, 18, 27, 40, ... up to `max_repeats`, which is always the last."""
        look = FIRST_LOOK
        while look < self.max_repeats:
            yield look
            look = round(1.5 * look)
        yield self.max_repeats

    def finished(self, repeats: Sequence[Repeat]) -> bool:
        """Does the point need no more repeats in this launch? `repeats`: its valid ones of this launch."""
        if len(repeats) >= self.max_repeats:
            return True
        return len(repeats) in self.looks() and self.precision_reached(StepTime.of(repeats))

    def precision_reached(self, time: StepTime) -> bool:
        """Is the figure as precise as asked, over enough steps for that to mean something?"""
        width = time.relative_half_width
        return width is not None and width <= self.precision and time.steps >= MIN_STEPS


def interleave(points: Sequence[Point], seed: int, turn: int) -> list[Point]:
    """The order of the points that still need repeats in turn number `turn`: random, the same for the same seed.

    Every point gets one repeat a turn, so that a slow minute of the machine falls on all of them.
    """
    order = list(points)
    Random(f"{seed}/{turn}").shuffle(order)
    return order
