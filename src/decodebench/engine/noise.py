"""How quiet this machine is: the same short piece of work, timed over and over for a few seconds.

A step of a few milliseconds cannot be measured better than the machine lets a fixed piece of work repeat. Two things
disturb it: other processes take the core away (rare, long gaps), and clock, cache and hypervisor change the speed
(everywhere, small). So the figure has two parts: `jitter`, the half of the middle 90 % of the durations relative to the
median, and `stolen`, the share of the time in which the work took more than twice its median.

    measure_noise(seconds=5.0).jitter   # 0.03 on a quiet machine
"""

import os
import time
from dataclasses import dataclass
from statistics import median, quantiles

_TARGET_NS = 1_000_000  # length of one piece of work: that of a short decode step
_MAX_JITTER = 0.10
_MAX_STOLEN = 0.02


@dataclass(frozen=True, slots=True)
class Noise:
    """What a fixed piece of work of about 1 ms said about the machine. Shares are of 1."""

    seconds: float  # how long it was measured
    samples: int
    median_ns: int
    p99_ns: int
    max_ns: int
    jitter: float  # (p95 - p5) / 2 / median
    stolen: float  # share of the time above the median in pieces that took more than twice the median
    load: float  # other runnable processes per core (1-minute load average) when it began

    @property
    def is_quiet(self) -> bool:
        return self.jitter <= _MAX_JITTER and self.stolen <= _MAX_STOLEN

    def __str__(self) -> str:
        verdict = (
            "quiet" if self.is_quiet else "noisy: intervals will be wide; stop other work or use more repeats"
        )
        return (
            f"jitter {self.jitter:.1%}, stolen {self.stolen:.1%}, p99 {self.p99_ns / self.median_ns:.2f}x the median, "
            f"load {self.load:.1f} per core ({verdict})"
        )


def measure_noise(seconds: float = 5.0) -> Noise:
    """Repeat one piece of work on one thread for `seconds` and describe how its duration varied."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    rounds = _rounds_of(_TARGET_NS)
    durations: list[int] = []
    end = time.monotonic_ns() + round(seconds * 1e9)
    while (begun := time.monotonic_ns()) < end or len(durations) < 20:
        _work(rounds)
        durations.append(time.monotonic_ns() - begun)
    return describe(durations, seconds, load)


def describe(durations: list[int], seconds: float, load: float) -> Noise:
    """The figures of a series of durations (ns)."""
    cuts = quantiles(durations, n=100, method="inclusive")
    middle = median(durations)
    lost = sum(duration - middle for duration in durations if duration > 2 * middle)
    return Noise(
        seconds=seconds,
        samples=len(durations),
        median_ns=round(middle),
        p99_ns=round(cuts[98]),
        max_ns=max(durations),
        jitter=(cuts[94] - cuts[4]) / 2 / middle,
        stolen=lost / sum(durations),
        load=load,
    )


def _work(rounds: int) -> int:
    value = 1
    for _ in range(rounds):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def _rounds_of(target_ns: int) -> int:
    """How many rounds take about `target_ns`: the fastest of a few tries decides, so that a busy moment does not."""
    probe = 2_000
    best = min(_timed(probe) for _ in range(20))
    return max(1, probe * target_ns // best)


def _timed(rounds: int) -> int:
    begun = time.monotonic_ns()
    _work(rounds)
    return max(1, time.monotonic_ns() - begun)
