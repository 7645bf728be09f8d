"""Step time of a point: repeats in, one figure with its interval out.

The unit is the repeat (one cohort, one window), nested in the launch (one server). The mean of a repeat is
its window's duration over its steps; no step is left out. Within one launch the interval is over the repeats'
means, and speaks of that launch only: another start of the same server may differ by more. From three
launches on it is over the launches' means. Two (a run that was resumed, say) cannot tell how much launches
differ: the interval is over the repeats about their own launch's mean, and speaks of these two only. Of fewer than
`FEWEST_FOR_INTERVAL` repeats there is none, and none reaches below 0: a step takes some time. Median,
p90, p99 and the maximum describe the single steps of all windows; no interval is made from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from decodebench.bench.interval import interval
from decodebench.bench.step_log import IntArray
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

FEWEST_LAUNCHES = 3
"""Launches from which on the interval is made of their means: two means have one degree of freedom."""


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """The step durations of one valid window, and the launch it was measured in."""

    launch: int
    durations: IntArray  # ns

    @property
    def mean_ns(self) -> float:
        """Window duration / steps."""
        return int(self.durations.sum()) / len(self.durations)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Step time of one point in ns. `low` and `high` are None for too few repeats to make an interval from."""

    mean: int
    low: int | None  # 95 % interval of the mean
    high: int | None
    median: int  # of single steps, like the three below: each is the duration of a step that happened
    p90: int
    p99: int
    max: int
    repeats: int
    launches: int
    steps: int

    @classmethod
    def of(cls, repeats: Sequence[Repeat]) -> Self:
        """Summarise the valid repeats of a point; at least one."""
        assert repeats, "a point without a valid repeat has no step time"
        by_launch = _by_launch(repeats)
        launches = [float(np.mean(means)) for means in by_launch]
        if len(launches) >= FEWEST_LAUNCHES:
            figures, means = launches, 1
        else:
            figures, means = _about_their_launch(by_launch), len(launches)
        bounds = interval(figures, means) if len(repeats) >= FEWEST_FOR_INTERVAL else None
        steps = np.concatenate([repeat.durations for repeat in repeats])
        median, p90, p99 = (int(v) for v in np.percentile(steps, (50, 90, 99), method="inverted_cdf"))
        return cls(
            mean=round(float(np.mean(figures))),
            low=None if bounds is None else round(max(bounds[0], 0.0)),
            high=None if bounds is None else round(bounds[1]),
            median=median,
            p90=p90,
            p99=p99,
            max=int(steps.max()),
            repeats=len(repeats),
            launches=len(launches),
            steps=len(steps),
        )

    @property
    def relative_half_width(self) -> float | None:
        """Half of the interval over the mean: the precision that was reached."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2 / self.mean

    @property
    def scope(self) -> str:
        """What the interval speaks of."""
        if self.launches == 1:
            return "within one launch"
        return f"{'across' if self.launches >= FEWEST_LAUNCHES else 'within'} {self.launches} launches"

    def output_tokens_per_s(self, batch: int) -> float:
        """Output tokens/s of `batch` requests that each emit one token a step (no speculative decoding)."""
        return batch * 1e9 / self.mean


def _by_launch(repeats: Sequence[Repeat]) -> list[list[float]]:
    """The repeats' means, launch by launch."""
    by_launch: dict[int, list[float]] = {}
    for repeat in repeats:
        by_launch.setdefault(repeat.launch, []).append(repeat.mean_ns)
    return list(by_launch.values())


def _about_their_launch(by_launch: list[list[float]]) -> list[float]:
    """Every repeat, moved by what its launch's mean differs from that of all: the spread within launches is left."""
    overall = float(np.mean([mean for means in by_launch for mean in means]))
    return [mean - float(np.mean(means)) + overall for means in by_launch for mean in means]
