"""How much longer one kind of step takes than another, on a machine whose speed changes.

A virtual machine runs at two speeds or more, for seconds or minutes at a time, as others use what it shares. Means
carry that. Here each side's passes over the same requests are cut into short runs of steps, and every pass of one side
makes a pair with every pass of the other. The logarithm of a pair's ratio lies near the truth if the machine ran at one
speed in both, and off by the ratio of the speeds if not, to either side as likely: the ratios make a heap, and smaller
heaps beside it. The estimate m is the heap's centre, for which what lies off weighs next to nothing (Welsch):

    m = sum(w r) / sum(w)        w = exp(-(r - m)^2 / 2 h^2)        h = `WIDTH` times the heap's standard deviation

of which the shortest interval that holds a quarter of all ratios is the measure: it lies within the heap, and normal
ratios tell how long it is (0.637 standard deviations). Where draws differ by more than their passes, h is
`WIDTH_BETWEEN` standard deviations of the draws' medians, by their median absolute deviation. What is independent are
the draws of prompts. The interval is that of the mean of x_d = m + n (m - m_d), where m_d is the estimate without draw
d of n, of which one step of Newton's is enough: m - m_d = sum_d(w (r - m)) / sum_others(w (1 - (r - m)^2 / h^2)).
That is the jackknife, but for n in place of n - 1, which makes up for what a start from the found heap cannot see.
`benchmarks/fidelity_coverage.py` measures how often the interval holds the truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.drift import robust_deviation
from decodebench.bench.interval import interval
from decodebench.bench.step_log import IntArray
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

RUN_STEPS = 12
"""Steps of a run: about a second of the slow machines that need this, in which they seldom change."""
WIDTH = 1.25
"""Of normal ratios the estimate has 0.78 of the mean's efficiency; those four deviations off weigh 0.6 %."""
WIDTH_BETWEEN = 2.0
"""The same in standard deviations between draws, of which there are few: 0.94."""
LEAST_HELD = 10
"""Ratios that the measure of the heap holds: few lie close together by chance."""
LEAST_OTHERS = 0.1
"""Share of the heap that the other draws must hold for a draw to be left out: else one draw is the heap, or there are
two heaps with nothing between them, and there is no interval."""
MOST_TURNS = 200

Ratios = NDArray[np.float64]
Pass = tuple[IntArray, ...]
"""Durations of a window's steps in ns, a rank each."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The passes over the same requests, of both sides; at least one each, all with the same ranks."""

    real: Sequence[Pass]
    filled: Sequence[Pass]

    @property
    def log_ratios(self) -> Ratios:
        """Of every pass that is filled to every one that is really prefilled, run by run."""
        real, filled = np.stack(list(map(_runs, self.real))), np.stack(list(map(_runs, self.filled)))
        return (filled[:, None] - real[None]).ravel()


def log_ratio(draws: Sequence[Draw]) -> tuple[float, tuple[float, float] | None]:
    """The logarithm of filled / real, and the ends of its 95 % interval; None for too few draws. At least one draw."""
    by_draw = [draw.log_ratios for draw in draws]
    centre, width = _heap(by_draw)
    if len(draws) < FEWEST_FOR_INTERVAL:
        return centre, None
    off = [(each - centre) / width for each in by_draw]
    pull = np.array([float(np.sum(np.exp(-z * z / 2) * z)) for z in off])
    slope = np.array([float(np.sum(np.exp(-z * z / 2) * (1 - z * z))) for z in off])
    others = slope.sum() - slope
    if others.min() <= LEAST_OTHERS * slope.sum():
        return centre, None
    return centre, interval(centre + width * len(draws) * pull / others)


def _runs(ranks: Pass) -> Ratios:
    """Logarithms of the mean step times of a pass's runs, rank by rank."""
    runs = [run for steps in ranks for run in np.array_split(steps, max(1, len(steps) // RUN_STEPS))]
    return np.log([run.mean() for run in runs])


def _heap(by_draw: Sequence[Ratios]) -> tuple[float, float]:
    """Centre and width h of the highest heap."""
    x = np.concatenate(by_draw)
    centre, deviation = _shortest(x, max(ceil(len(x) / 4), LEAST_HELD))
    medians = np.array([np.median(each) for each in by_draw])
    width = max(WIDTH * deviation, WIDTH_BETWEEN * robust_deviation(medians), 1e-9)
    for _ in range(MOST_TURNS):
        weights = np.exp(-(((x - centre) / width) ** 2) / 2)
        before, centre = centre, float(weights @ x / weights.sum())
        if abs(centre - before) < 1e-6 * width:
            break
    return centre, width


def _shortest(figures: Ratios, holds: int) -> tuple[float, float]:
    """Middle of the shortest interval that holds so many, or all, and the standard deviation if they are normal."""
    x, holds = np.sort(figures), min(holds, len(figures))
    lengths = x[holds - 1 :] - x[: len(x) - holds + 1]
    first = int(np.argmin(lengths))
    normal = 2 * NormalDist().inv_cdf(0.5 + holds / (len(x) + 1) / 2)
    return float(x[first] + x[first + holds - 1]) / 2, float(lengths[first]) / normal
