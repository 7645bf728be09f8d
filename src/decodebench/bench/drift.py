"""Is a repeat drifting: do the halves of its window disagree?

The halves are compared by their medians (rare slow steps are part of the result, not drift). Growing contexts
may make the second half slower, by at most the ratio of contexts, since a step's time is at best proportional
to the context it reads. What is left is drift if it is both *large*, over 5 % of the step time, and *clear*,
over four standard errors of the difference for independent steps, spread estimated by the median absolute
deviation within each half:

    change    = median(second half) / median(first half) - 1
    tolerance = max(5 %, 4 sqrt(se_1^2 + se_2^2) / median(first half))      se = 1.2533 x 1.4826 x MAD / sqrt(n)
    drifting  : change < -tolerance  or  change > growth + tolerance        growth = context ratio of the halves - 1

False alarms on series that do not drift: measured by `benchmarks/coverage.py`, column `drifting`.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

LARGE = 0.05
CLEAR = 4.0
MEDIAN_SE = 1.2533  # standard error of a median over that of a mean, normal noise: sqrt(pi / 2)
MAD_SD = 1.4826  # standard deviation over MAD, normal noise


@dataclass(frozen=True, slots=True)
class Drift:
    """How much slower the second half of a window is, and what would be no drift. Shares of the first half's median."""

    change: float
    lowest: float
    highest: float

    @property
    def drifting(self) -> bool:
        return not self.lowest <= self.change <= self.highest


def drift(durations: NDArray[np.int64], first_context: float) -> Drift:
    """Compare the halves of a window (ns a step, all positive) whose first step reads `first_context` tokens a request.

    Of an odd number of steps the middle one belongs to neither half.
    """
    half = len(durations) // 2
    assert half >= 1, "a window has at least two steps"
    first, second = durations[:half].astype(np.float64), durations[-half:].astype(np.float64)
    before, after = float(np.median(first)), float(np.median(second))
    tolerance = max(LARGE, CLEAR * sqrt(_median_variance(first) + _median_variance(second)) / before)
    growth = (len(durations) - half) / max(first_context, 1.0)
    return Drift(after / before - 1, -tolerance, growth + tolerance)


def _median_variance(half: NDArray[np.float64]) -> float:
    return (MEDIAN_SE * robust_deviation(half)) ** 2 / len(half)


def robust_deviation(figures: NDArray[np.float64]) -> float:
    """Standard deviation of normal figures, by the median absolute deviation, which those far off hardly move."""
    return MAD_SD * float(np.median(np.abs(figures - np.median(figures))))
