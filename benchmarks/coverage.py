"""Does the 95 % interval hold the true step time in 93 to 97 of 100 runs, with the stopping rule in force?

Simulated step series with a known truth go through the code that measured ones go through: warm-up cut, drift
check, looks, interval. Nothing of it is re-implemented here, only the engine is made up.

    python benchmarks/coverage.py                 # every case, 2,000 runs each
    python benchmarks/coverage.py --runs 200 spikes growth

Prints a line a case (coverage, share of runs whose interval lies wholly below / above the truth, repeats
used, share of repeats whose start was cut and that were thrown away as drifting), then one JSON line.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.drift import drift
from decodebench.bench.stats import Repeat, StepTime
from decodebench.bench.stopping import Stopping
from decodebench.bench.warmup import warmup_end
from decodebench.bench.window_plan import WindowPlan

STEP_NS = 10_000_000
BLOCK = 12  # repeats drawn at once
TARGET = (0.93, 0.97)

Series = NDArray[np.float64]  # (repeats, steps), true step time = 1
Draw = Callable[[np.random.Generator, int], Series]


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of series. `draw(rng, steps)` gives `BLOCK` repeats from the end of the warm-up on."""

    name: str
    draw: Draw
    context: int = 4096
    repeat_sd: float = 0.01
    launch_sd: float = 0.0
    launches: int = 1
    max_repeats: int = 40
    periods: tuple[int, ...] = (16,)

    @property
    def plan(self) -> WindowPlan:
        return WindowPlan.of(self.context, max_model_len=1 << 20, periods=self.periods)


def white(sd: float) -> Draw:
    return lambda rng, steps: 1 + sd * rng.standard_normal((BLOCK, steps))


def ar1(rho: float, sd: float) -> Draw:
    """Stationary, standard deviation `sd`."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        noise = rng.standard_normal((BLOCK, steps))
        x = np.empty_like(noise)
        x[:, 0] = noise[:, 0]
        for k in range(1, steps):
            x[:, k] = rho * x[:, k - 1] + np.sqrt(1 - rho**2) * noise[:, k]
        return 1 + sd * x

    return draw


def spikes(share: float, factor: float, sd: float = 0.02) -> Draw:
    """A `share` of the steps, at random, takes `factor` times as long."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        slow = np.where(rng.random((BLOCK, steps)) < share, factor, 1.0)
        return (slow + sd * rng.standard_normal((BLOCK, steps))) / (1 + share * (factor - 1))

    return draw


def periodic(period: int, factor: float, sd: float = 0.02) -> Draw:
    """Every `period`-th step takes `factor` times as long, at the same steps in every repeat."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        slow = np.where(np.arange(steps) % period == 3, factor, 1.0)
        return (slow + sd * rng.standard_normal((BLOCK, steps))) / (1 + (factor - 1) / period)

    return draw


def growth(context: int, sd: float = 0.02) -> Draw:
    """All of the step's time grows with the context; the truth is that of the window planned."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        plan = WindowPlan.of(context, max_model_len=1 << 20, periods=(16,))
        read = plan.prompt_len + plan.warmup_steps + np.arange(steps)
        return read / plan.window_context + sd * rng.standard_normal((BLOCK, steps))

    return draw


def start_up(extra: float, decay: float, sd: float = 0.02) -> Draw:
    """`extra` of a step's time at the end of the minimum warm-up, decaying by 1/e every `decay` steps."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        more = np.array([extra * exp(-k / decay) for k in range(steps)])
        return 1 + more + sd * rng.standard_normal((BLOCK, steps))

    return draw


CASES = [
    Case("quiet", white(0.01), repeat_sd=0.003),
    Case("white", white(0.05), repeat_sd=0.02),
    Case("white, short window", white(0.05), context=512),
    Case("AR(1) 0.5", ar1(0.5, 0.1)),
    Case("AR(1) 0.9", ar1(0.9, 0.1)),
    Case("AR(1) 0.98", ar1(0.98, 0.1)),
    Case("AR(1) 0.98, quiet", ar1(0.98, 0.02)),
    Case("repeat shifts 3 %", white(0.02), repeat_sd=0.03),
    Case("repeat shifts 6 %", white(0.02), repeat_sd=0.06),
    Case("repeat shifts 20 %", white(0.02), repeat_sd=0.2),
    Case("spikes", spikes(0.01, 10)),
    Case("spikes, short window", spikes(0.01, 10), context=512),
    Case("spikes, noise of 10 %", spikes(0.01, 10, sd=0.1)),
    Case("periodic 16", periodic(16, 3)),
    Case("periodic 128", periodic(128, 5), periods=(16, 128)),
    Case("growth 4k", growth(4096)),
    Case("growth 512", growth(512), context=512),
    Case("start-up", start_up(0.2, 4)),
    Case("five repeats", white(0.05), repeat_sd=0.05, max_repeats=5),
    Case("3 launches", white(0.02), launch_sd=0.03, launches=3),
    Case("8 launches", white(0.02), launch_sd=0.03, launches=8),
]


@dataclass(slots=True)
class Tally:
    """What happened over the runs of a case."""

    case: str
    runs: int = 0
    held: int = 0
    below: int = 0  # interval wholly below the truth
    above: int = 0
    reached: int = 0
    repeats: int = 0  # used
    drawn: int = 0  # used or drifting
    cut: int = 0
    drifting: int = 0

    def add(self, time: StepTime, stopping: Stopping) -> None:
        assert time.low is not None
        assert time.high is not None
        self.runs += 1
        self.repeats += time.repeats
        self.below += time.high < STEP_NS
        self.above += time.low > STEP_NS
        self.held += time.low <= STEP_NS <= time.high
        self.reached += stopping.precision_reached(time)

    @property
    def coverage(self) -> float:
        return self.held / self.runs

    @property
    def verdict(self) -> str:
        return "ok" if TARGET[0] <= self.coverage <= TARGET[1] else "OUTSIDE"

    def line(self) -> str:
        each = self.drawn / 100
        return (
            f"{self.case:<34} {self.coverage:7.1%} {self.below / self.runs:7.1%} {self.above / self.runs:7.1%}"
            f" {self.reached / self.runs:8.0%} {self.repeats / self.runs:8.1f} {self.cut / each:6.1f}%"
            f" {self.drifting / each:8.2f}%  {self.verdict}"
        )


HEADER = f"{'case':<34} {'held':>7} {'below':>7} {'above':>7} {'precise':>8} {'repeats':>8} {'cut':>7} {'drifting':>9}"


def series(case: Case, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Step durations in ns of one repeat after another, from the end of the minimum warm-up on."""
    steps = case.plan.slack_steps + case.plan.length
    while True:
        block = case.draw(rng, steps) * (1 + case.repeat_sd * rng.standard_normal((BLOCK, 1)))
        yield from np.maximum(1, STEP_NS * block).astype(np.int64)


def launch(
    case: Case, number: int, stopping: Stopping, rng: np.random.Generator, tally: Tally
) -> list[Repeat]:
    """Repeats of one launch, until the stopping rule says enough."""
    plan, shift = case.plan, 1 + case.launch_sd * rng.standard_normal()
    repeats: list[Repeat] = []
    for durations in series(case, rng):
        skip = warmup_end(durations, plan.slack_steps)
        window = (shift * durations[skip : skip + plan.length]).astype(np.int64)
        drifting = drift(window, plan.prompt_len + plan.warmup_steps + skip).drifting
        tally.drawn += 1
        tally.cut += skip > 0
        tally.drifting += drifting
        if drifting:
            continue
        repeats.append(Repeat(number, window))
        if stopping.finished(repeats):
            break
    return repeats


def simulate(case: Case, runs: int, seed: int) -> Tally:
    """Run the measurement `runs` times on fresh series."""
    tally, stopping = Tally(case.name), Stopping(max_repeats=case.max_repeats)
    rng = np.random.default_rng([seed, CASES.index(case)])
    for _ in range(runs):
        launches = (launch(case, number, stopping, rng, tally) for number in range(case.launches))
        tally.add(StepTime.of([repeat for repeats in launches for repeat in repeats]), stopping)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(HEADER, flush=True)
    tallies = []
    for case in CASES:
        if args.cases and not any(part in case.name for part in args.cases):
            continue
        tallies.append(simulate(case, args.runs, args.seed))
        print(tallies[-1].line(), flush=True)
    print(
        json.dumps(
            {"benchmark": "coverage", "seed": args.seed, "cases": [asdict(tally) for tally in tallies]}
        )
    )
    return 0 if all(tally.verdict == "ok" for tally in tallies) else 1


if __name__ == "__main__":
    sys.exit(main())
