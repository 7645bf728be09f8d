"""The 95 % interval of a mean of few independent figures that may be skewed, looked at several times.

The figures are repeats (or launches), never single steps: steps of one repeat are correlated, repeats are
not. Two things make the textbook interval, mean -+ t s / sqrt(n), hold the truth less often than it says:

- **Skew.** A rare slow step makes some repeats much longer and none shorter; a sample without one has a small
  mean *and* a small spread. Hall's transformation (P. Hall, "On the removal of skewness by transformation",
  J. R. Statist. Soc. B 54, 1992) stretches the interval on the long side by the sample's own skewness g:

      low, high = mean - s h(t), mean - s h(-t)
      h(y)      = 3 / g ((1 + g (y / sqrt(n) - g / (6 n)))^(1/3) - 1)

  and is the textbook interval for g = 0.
- **Looks.** Stopping at the first look that is precise enough favours samples whose spread came out small. So
  t is the quantile of `QUANTILE_LEVEL` (96.5 %), not of 95 %: what is left after the looks of `stopping.py`
  lies around 95 %.

A bootstrap was the alternative: with five repeats it has few distinct resamples, so its coverage is worse
exactly where most points stop. Both choices are validated together with the stopping rule by
`benchmarks/coverage.py`.
"""

from collections.abc import Sequence
from math import cbrt, sqrt

import numpy as np

from decodebench.bench.student import two_sided_quantile

QUANTILE_LEVEL = 0.965


def interval(figures: Sequence[float], means: int = 1) -> tuple[float, float] | None:
    """Low and high end of the 95 % interval of the mean, or None for too few figures.

    `means`: how many means were estimated from the figures and taken out of them; each costs a degree of freedom.
    """
    n = len(figures)
    if n <= means:
        return None
    x = np.asarray(figures, dtype=np.float64)
    mean, sd = float(x.mean()), float(x.std(ddof=means))
    if sd == 0:
        return mean, mean
    skew = float(np.mean(((x - mean) / sd) ** 3))
    t = two_sided_quantile(QUANTILE_LEVEL, n - means)
    return mean - sd * _unskewed(t, skew, n), mean - sd * _unskewed(-t, skew, n)


def _unskewed(y: float, skew: float, n: int) -> float:
    """Hall's h: where (mean - truth) / sd lies when the skew-free statistic is y."""
    if abs(skew) < 1e-6:
        return y / sqrt(n)
    return 3 / skew * (cbrt(1 + skew * (y / sqrt(n) - skew / (6 * n))) - 1)
