"""Quantiles of Student's t for whole degrees of freedom, without scipy.

The probability that |t| stays below a value is a finite sum in theta = atan(t / sqrt(df)) (Abramowitz and
Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4); the quantile is found by bisection.
"""

from functools import cache
from math import atan, cos, pi, sin, sqrt


def two_sided_probability(t: float, df: int) -> float:
    """P(|T| < t) for Student's T with `df` degrees of freedom."""
    assert df >= 1
    theta = atan(t / sqrt(df))
    odd = df % 2
    term = cos(theta) if odd else 1.0
    total = 0.0
    for k in range(1, df // 2 + 1):
        total += term
        term *= cos(theta) ** 2 * (2 * k - 1 + odd) / (2 * k + odd)
    return 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total


@cache
def two_sided_quantile(level: float, df: int) -> float:
    """The t with P(|T| < t) = level."""
    assert 0 < level < 1
    low, high = 0.0, 1.0
    while two_sided_probability(high, df) < level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if two_sided_probability(middle, df) < level:
            low = middle
        else:
            high = middle
    return high
