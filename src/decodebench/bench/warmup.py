"""Where the warm-up ends: MSER-5, made deaf to rare slow steps.

MSER-5 (White, Cobb and Spratt, Winter Simulation Conference 2000) cuts a series in batches of five and drops
the first d batches, for the d that minimises the squared standard error of the mean of what is left:

    MSER(d) = sum over i > d of (z_i - mean of the rest)^2 / (m - d)^2        z_1 .. z_m: the batches

Three departures, since here the cut must not choose the answer:

- A batch is its median, not its mean. With means, one slow step early in the series moves the start past it,
  while one late is kept: steps would be removed as outliers by another name.
- The trend of growing contexts is removed first (median of all pairwise slopes), or the rule would cut into a
  series that only grows.
- The start moves only if that at least halves MSER(0) and what is dropped differs from the rest by 1 % or
  more. A series with no start-up then keeps the window it was planned with (how often it does not:
  `benchmarks/coverage.py`, column `cut`).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

BATCH = 5
GAIN = 0.5
"""A cut must bring MSER down to this share of its value without a cut."""
WORTH = 0.01
"""What is dropped must differ from the rest by this share of the step time: less would not change the figure."""


def warmup_end(durations: NDArray[np.int64], slack: int) -> int:
    """Steps to drop from the front of `durations` (ns, in step order): a multiple of five, at most `slack`."""
    batches = len(durations) // BATCH
    latest = min(slack // BATCH, batches - 2)
    if latest < 1:
        return 0
    in_batches = durations[: batches * BATCH].reshape(batches, BATCH)
    z = np.sort(in_batches, axis=1)[:, BATCH // 2].astype(np.float64)  # medians
    level = np.median(z)
    z -= slope(z) * np.arange(batches)
    mser = [_mser(z[d:]) for d in range(latest + 1)]
    best = int(np.argmin(mser))  # of equal ones the earliest
    if best == 0 or mser[best] > GAIN * mser[0]:
        return 0
    start_up = z[:best].mean() - z[best:].mean()
    return best * BATCH if abs(start_up) >= WORTH * level else 0


def slope(z: NDArray[np.float64]) -> float:
    """Median of the slopes of all pairs (Theil and Sen): a start-up below 29 % of the series does not bend it."""
    i, j = _pairs(len(z))
    return float(np.median((z[j] - z[i]) / (j - i)))


@lru_cache(maxsize=8)
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(count, k=1)


def _mser(rest: NDArray[np.float64]) -> float:
    return float(np.var(rest)) / len(rest)
