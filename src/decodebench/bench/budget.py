"""The time a run was given, and what is left of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from decodebench.bench.point_state import PointState


@dataclass(frozen=True, slots=True)
class Budget:
    """`deadline`: on the monotonic clock, in seconds; None: as long as it takes."""

    deadline: float | None
    kept_s: float = 0.0  # beside it, for what comes behind the repeats

    @classmethod
    def of(cls, seconds: float | None, kept_s: float = 0.0) -> "Budget":
        """`kept_s`: of these seconds, left for what comes behind the repeats."""
        return cls(None if seconds is None else time.monotonic() + seconds - kept_s, kept_s)

    def exceeded_by(self, state: PointState, states: Sequence[PointState]) -> bool:
        """Whether another repeat of `state` would end too late; one never measured is taken for the slowest known."""
        if self.deadline is None:
            return False
        known = [each.seconds for each in states if each.seconds is not None]
        expected = state.seconds if state.seconds is not None else max(known, default=0.0)
        return time.monotonic() + expected > self.deadline

    def left(self, repeats: Sequence[tuple[PointState, int]], starts_s: float = 0.0) -> float | None:
        """Seconds to the end at most: every point takes all the repeats it may have, within the budget.

        Precision may end it earlier. None while a point that has repeats left was never measured, and without a budget.

        Args:
            repeats: every point, and how many it may have (`PointState.repeats_left`).
            starts_s: what the server starts to come may take.
        """
        rest = None if self.deadline is None else self.deadline - time.monotonic()
        needed = _seconds([(state.seconds, count) for state, count in repeats if count])
        bounds = [
            bound for bound in (rest, None if needed is None else needed + starts_s) if bound is not None
        ]
        return max(0.0, min(bounds)) + self.kept_s if bounds else None


def _seconds(repeats: Sequence[tuple[float | None, int]]) -> float | None:
    """What so many repeats of such lengths take together; None if a length is not known, or none was asked for."""
    known = [(each, count) for each, count in repeats if each is not None]
    return sum(each * count for each, count in known) if known and len(known) == len(repeats) else None
