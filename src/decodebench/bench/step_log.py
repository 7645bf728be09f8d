"""The step log of one cohort as arrays, once it has been found well formed.

The log crosses a process and a network before it is read here, so nothing about it is taken for granted:
every column is there, all have one length, every value is a non-negative int, and step numbers rise. A log
that fails is a reason for an invalid repeat, never a crash.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from decodebench.results.steps import STEP_COLUMNS

IntArray = NDArray[np.int64]

LARGEST = 2**62
"""Values up to this survive a difference of two in int64."""


class LogError(ValueError):
    """The step log cannot be read; the message is one sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class StepLog:
    """One int64 array per column of `results/steps.py`, one row an engine step."""

    step: IntArray
    scheduled_ns: IntArray
    done_ns: IntArray
    num_reqs: IntArray
    decode_tokens: IntArray
    prefill_tokens: IntArray
    foreign_reqs: IntArray
    preempted: IntArray
    fills_in_flight: IntArray
    gated: IntArray
    context_tokens: IntArray
    context_min: IntArray
    context_max: IntArray

    @classmethod
    def read(cls, steps: object) -> Self:
        """Check a log of unknown origin. Raises `LogError` with the first thing wrong; unknown columns are ignored."""
        if not isinstance(steps, Mapping):
            raise LogError(f"the step log is {type(steps).__name__}, not a table of columns")
        columns = {name: _column(name, steps.get(name)) for name in STEP_COLUMNS}
        rows = len(columns["step"])
        for name, column in columns.items():
            if len(column) != rows:
                raise LogError(
                    f"column {name} of the step log has {len(column)} rows, column step has {rows}"
                )
        back = np.flatnonzero(np.diff(columns["step"]) <= 0)
        if len(back):
            after, before = columns["step"][back[0] + 1], columns["step"][back[0]]
            raise LogError(f"the step log goes from step {before} to step {after}: step numbers must rise")
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.step)

    def rows(self, index: slice) -> Self:
        """The same columns over a run of rows."""
        return type(self)(**{name: getattr(self, name)[index] for name in STEP_COLUMNS})


def _column(name: str, values: object) -> IntArray:
    if values is None:
        raise LogError(f"the step log has no column {name}")
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise LogError(f"column {name} of the step log is {type(values).__name__}, not a list")
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value <= LARGEST:
            raise LogError(
                f"row {row} of column {name} of the step log is {_short(value)}, not a count or a time"
            )
    return np.array(values, dtype=np.int64)


def _short(value: object) -> str:
    """What the value looks like, without trusting its own `repr` or size."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "an int of over 30 digits"
    if type(value) in (int, float, bool, type(None)):
        return repr(value)
    return f"a {type(value).__name__}"
