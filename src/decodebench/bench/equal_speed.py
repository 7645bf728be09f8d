"""How much longer one kind of step takes than another, on a machine whose speed changes.

A virtual machine runs at two speeds or more, for seconds or minutes at a time, as others use what it shares. Means
carry that. Here each side's passes over the same requests are cut into short runs of steps, and every pass of one side
makes a pair with every pass of the other. The logarithm of a pair's ratio lies near the truth if the machine ran at one
speed in both, and off by the ratio of the speeds if not, to either side as likely: the ratios make a heap, and smaller
heaps beside it. The estimate m is the heap's centre, for which what lies off weighs next to nothing (Welsch):

    m = sum(w r) / sum(w)        w = exp(-(r - m)^2 / 2 h^2)        h = `WIDTH` times the heap's standard deviation

of which the shortest interval that holds a third of all ratios is the measure: it lies within the heap, and normal
ratios tell how long it is (0.861 standard deviations). What is independent are the draws of prompts. The interval is
that of the mean of x_d = m + n sum(w (r - m)) / sum(w (1 - (r - m)^2 / h^2)), the upper sum over the ratios of draw d
of n, the lower over all: the estimate's linearisation, whose mean is m. `benchmarks/fidelity_coverage.py` measures how
often it holds the truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.interval import interval
from decodebench.bench.step_log import IntArray
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

RUN_STEPS = 12
"""Steps of a run: about a second of the slow machines that need this, in which they seldom change."""
WIDTH = 1.5
"""Of normal ratios the estimate has 0.86 of the mean's efficiency; ratios four deviations off weigh 3 %."""
LEAST_HELD = 10
"""Ratios that the measure of the heap holds: few lie close together by chance."""
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
    centre, width = _heap(np.concatenate(by_draw))
    if len(draws) < FEWEST_FOR_INTERVAL:
        return centre, None
    off = [(each - centre) / width for each in by_draw]
    pull = [float(np.sum(np.exp(-z * z / 2) * z)) for z in off]
    slope = sum(float(np.sum(np.exp(-z * z / 2) * (1 - z * z))) for z in off)
    if slope <= 0:
        return centre, None  # no heap, but two with nothing between them
    return centre, interval([centre + width * len(draws) * each / slope for each in pull])


def _runs(ranks: Pass) -> Ratios:
    """Logarithms of the mean step times of a pass's runs, rank by rank."""
    runs = [run for steps in ranks for run in np.array_split(steps, max(1, len(steps) // RUN_STEPS))]
    return np.log([run.mean() for run in runs])


def _heap(ratios: Ratios) -> tuple[float, float]:
    """Centre and width h of the highest heap."""
    x = np.sort(ratios)
    holds = max(ceil(len(x) / 3), min(len(x), LEAST_HELD))
    lengths = x[holds - 1 :] - x[: len(x) - holds + 1]
    first = int(np.argmin(lengths))
    centre = float(x[first] + x[first + holds - 1]) / 2
    deviation = float(lengths[first]) / (2 * NormalDist().inv_cdf(0.5 + holds / (len(x) + 1) / 2))
    width = WIDTH * max(deviation, 1e-9)  # equal ratios have some width too
    for _ in range(MOST_TURNS):
        weights = np.exp(-(((x - centre) / width) ** 2) / 2)
        before, centre = centre, float(weights @ x / weights.sum())
        if abs(centre - before) < 1e-6 * width:
            break
    return centre, width
