"""The time a run was given, and what is left of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from decodebench.bench.point_state import PointState
from decodebench.bench.stopping import FIRST_LOOK


@dataclass(frozen=True, slots=True)
class Budget:
    """`deadline`: on the monotonic clock, in seconds; None: as long as it takes."""

    deadline: float | None

    @classmethod
    def of(cls, seconds: float | None, kept_s: float = 0.0) -> "Budget":
        """`kept_s`: of these seconds, left for what comes behind the repeats."""
        return cls(None if seconds is None else time.monotonic() + seconds - kept_s)

    def exceeded_by(self, state: PointState, states: Sequence[PointState]) -> bool:
        """Whether another repeat of `state` would end too late; one never measured is taken for the slowest known."""
        if self.deadline is None:
            return False
        known = [each.seconds for each in states if each.seconds is not None]
        expected = state.seconds if state.seconds is not None else max(known, default=0.0)
        return time.monotonic() + expected > self.deadline

    def left(self, states: Sequence[PointState]) -> float | None:
        """Estimated seconds to the end: what the open points need to their first look, within the budget."""
        rest = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        known = [state.seconds for state in states if state.seconds is not None]
        if not known:
            return rest
        mean = sum(known) / len(known)
        needed = sum(
            (state.seconds or mean) * max(1, FIRST_LOOK - len(state.judged))
            for state in states
            if state.plan.misfit is None and state.stopped is None
        )
        return needed if rest is None else min(needed, rest)
