"""The measured window: a contiguous run of a cohort's steps, cut from the step log.

The cut looks at times alone. Which steps it takes is settled by the plan and the warm-up rule before anybody
looks at what the steps decoded; `validity.py` looks afterwards, and one bad step spoils the window instead of
being cut away.

Steps are counted from the cohort's first decode step: the first row from the release on that schedules a
member. Rows that schedule nothing are not decode steps. With batches in flight the time between two calls of
the scheduler is not a step's time, so a step lasts from the return of the outputs of the step before it to
the return of its own.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from decodebench.bench.step_log import IntArray, StepLog
from decodebench.bench.warmup import warmup_end
from decodebench.bench.window_plan import WindowPlan


class WindowError(ValueError):
    """The log holds no such window; the message is one sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The window's rows and how long each of its decode steps took."""

    rows: StepLog  # from the first to the last step of the window, rows that schedule nothing included
    durations: IntArray  # ns, one per decode step
    previous_step: int  # step number of the decode step before the window, from whose completion time runs
    start: int  # the first one's number, counted from the cohort's first decode step

    @classmethod
    def cut(cls, log: StepLog, plan: WindowPlan, release_step: int) -> Self:
        """Take the window that the plan and MSER-5 settle. Raises `WindowError` if steps or their times are missing.

        `release_step`: the connector's step number from which the cohort may have been scheduled.
        """
        decode = _decode_rows(log, release_step)
        if len(decode) < plan.last_steps:
            raise WindowError(
                f"the log holds {len(decode)} decode steps from the release on,"
                f" the window needs {plan.last_steps}"
            )
        durations = _durations(log, decode[plan.warmup_steps - 1 : plan.last_steps])
        skip = warmup_end(durations, plan.slack_steps)
        start = plan.warmup_steps + skip
        first, last = int(decode[start]), int(decode[start + plan.length - 1])
        return cls(
            rows=log.rows(slice(first, last + 1)),
            durations=durations[skip : skip + plan.length],
            previous_step=int(log.step[decode[start - 1]]),
            start=start,
        )

    @property
    def total_ns(self) -> int:
        """From the completion of the step before the window to that of its last step."""
        return int(self.durations.sum())

    @property
    def num_steps(self) -> int:
        return len(self.durations)

    @property
    def context(self) -> float:
        """Measured context: KV tokens a request reads in a step, mean over the window's decode steps."""
        decode = self.rows.num_reqs > 0
        return float(np.mean(self.rows.context_tokens[decode] / self.rows.num_reqs[decode]))


def _decode_rows(log: StepLog, release_step: int) -> IntArray:
    """Rows of the decode steps, from the first that schedules a member at or after the release."""
    members = np.flatnonzero((log.step >= release_step) & (log.num_reqs > log.foreign_reqs))
    if not len(members):
        raise WindowError(f"the log holds no step of the cohort from the release in step {release_step} on")
    busy: IntArray = np.flatnonzero(log.num_reqs > 0)
    from_first: IntArray = busy[busy >= members[0]]
    return from_first


def _durations(log: StepLog, rows: IntArray) -> IntArray:
    """ns from each row's completion to the next one's."""
    done = log.done_ns[rows]
    unknown = np.flatnonzero(done == 0)
    if len(unknown):
        raise WindowError(f"step {log.step[rows[unknown[0]]]} has no completion time")
    durations = np.diff(done)
    wrong = np.flatnonzero(durations <= 0)
    if len(wrong):
        before, after = log.step[rows[wrong[0]]], log.step[rows[wrong[0] + 1]]
        raise WindowError(f"step {after} completed no later than step {before}")
    return durations
