"""Do the intervals of `decodebench fidelity` hold the true error in 93 to 97 of 100 runs, on machines of two speeds?

Simulated cohorts with a known error go through the code that measured ones go through: warm-up cut, drift check, draws
and passes, looks, both intervals. Only the engine and the machine are made up. The machine is fast or slow for
seconds at a time, whoever runs on it; a cohort's steps differ by what its requests' KV says, alike in every pass.

    python benchmarks/fidelity_coverage.py                 # every case, 400 runs each
    python benchmarks/fidelity_coverage.py --runs 100 --passes 1,2,4,8 slow

Prints a line a case and number of passes: draws used; share of runs whose interval holds the true error, lies wholly
below or above it, and its mean half-width, once for the error at equal speed and once for that of the means; then one
JSON line.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import inf
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.drift import drift
from decodebench.bench.fidelity import REAL, Figures, Round, compare
from decodebench.bench.fidelity_rounds import Effort
from decodebench.bench.warmup import warmup_end
from decodebench.bench.window_plan import WindowPlan
from decodebench.cli.fidelity import PASSES
from decodebench.results.fidelity import RelativeError

FILL = "donor"
PLAN = WindowPlan.of(1000, max_model_len=8192, periods=(16,), window_steps=96)
STEP_S = 0.065
TRUTH = -0.03
TARGET = (0.93, 0.97)


@dataclass(frozen=True, slots=True)
class Case:
    """A machine and a model."""

    name: str
    slow: float = 0.5  # share of the time
    dwell_s: float = 8.0  # mean length of a slow stretch
    factor: float = 1.4  # of a slow step
    draw_sd: float = 0.02  # of a draw's content, either side
    step_sd: float = 0.03  # of a step's content
    noise: float = 0.02  # mean of what a pass adds to a step, exponential
    max_draws: int = 40
    budget_s: float = 2400


CASES = [
    Case("quiet", slow=0.0),
    Case("quiet, contents differ by 5 %", slow=0.0, draw_sd=0.05),
    Case("quiet, steps alike", slow=0.0, step_sd=0.002, noise=0.002),
    Case("slow a fifth of the time", slow=0.2),
    Case("slow half of the time"),
    Case("slow half of the time, 2 s", dwell_s=2),
    Case("slow half of the time, 60 s", dwell_s=60),
    Case("slow most of the time", slow=0.8),
    Case("noise of 10 %", noise=0.1),
    Case("five draws", max_draws=5),
]


class Machine:
    """Fast or slow; time passes with the work done on it."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.now = 0.0
        self._case = case
        self._rng = rng
        self._is_slow = rng.random() < case.slow
        self._until = self._stretch()

    def run(self, work_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds that each piece of work took; a piece runs at the speed it began at."""
        took = np.empty_like(work_s)
        for k, seconds in enumerate(work_s):
            if self.now >= self._until:
                self._is_slow = not self._is_slow
                self._until = self.now + self._stretch()
            took[k] = seconds * (self._case.factor if self._is_slow else 1.0)
            self.now += took[k]
        return took

    def _stretch(self) -> float:
        case = self._case
        if case.slow == 0:
            return float("inf")
        mean = case.dwell_s if self._is_slow else case.dwell_s * (1 - case.slow) / case.slow
        return float(self._rng.exponential(mean))


def rounds(case: Case, passes: int, rng: np.random.Generator) -> Iterator[list[Round]]:
    """All rounds so far, after each draw."""
    machine, found = Machine(case, rng), []
    steps = PLAN.warmup_steps + PLAN.slack_steps + PLAN.length
    for draw in range(case.max_draws):
        work = {}
        for arm, level in ((REAL, 1.0), (FILL, 1 + TRUTH)):
            content = np.exp(case.draw_sd * rng.standard_normal() + case.step_sd * rng.standard_normal(steps))
            work[arm] = STEP_S * level * content / np.exp((case.draw_sd**2 + case.step_sd**2) / 2)
        for _ in range(passes):
            order = list(work)
            rng.shuffle(order)
            found.append(Round(draw, {arm: cohort(machine, work[arm], case.noise, rng) for arm in order}))
        yield found
        if machine.now > case.budget_s:
            return


def cohort(machine: Machine, work_s: NDArray[np.float64], noise: float, rng: np.random.Generator) -> Figures:
    """One cohort of an arm: warm-up, then the window that the rules of every measurement cut."""
    took = machine.run(work_s * (1 + rng.exponential(noise, len(work_s))))
    durations = (1e9 * took[PLAN.warmup_steps :]).astype(np.int64)
    first = warmup_end(durations, PLAN.slack_steps)
    window = durations[first : first + PLAN.length]
    found = drift(window, PLAN.prompt_len + PLAN.warmup_steps + first)
    return Figures((window,), PLAN.window_context, 16.0, drifting="drifting" if found.drifting else None)


@dataclass(slots=True)
class Held:
    """What became of one of the two intervals over the runs."""

    none: int = 0
    held: int = 0
    below: int = 0  # wholly below the truth
    above: int = 0
    half_widths: list[float] = field(default_factory=list, repr=False)

    def add(self, found: RelativeError | None) -> None:
        if found is None or found.low is None or found.high is None:
            self.none += 1
            return
        self.held += found.low <= TRUTH <= found.high
        self.below += found.high < TRUTH
        self.above += found.low > TRUTH
        self.half_widths.append((found.high - found.low) / 2)

    @property
    def coverage(self) -> float:
        return self.held / max(1, len(self.half_widths))

    def line(self) -> str:
        runs = max(1, len(self.half_widths))
        width = fmean(self.half_widths) if self.half_widths else float("nan")
        return f"{self.coverage:7.1%} {self.below / runs:6.1%} {self.above / runs:6.1%} {width:7.2%} {self.none:5}"


@dataclass(slots=True)
class Tally:
    case: str
    passes: int
    draws: list[int] = field(default_factory=list)
    at_equal_speed: Held = field(default_factory=Held)
    means: Held = field(default_factory=Held)

    def line(self) -> str:
        intervals = f"{self.at_equal_speed.line()} {self.means.line()}"
        return f"{self.case:<32} {self.passes:6} {fmean(self.draws):6.1f} {intervals}"


def simulate(case: Case, passes: int, runs: int, seed: int) -> Tally:
    """Run the measurement `runs` times on fresh machines."""
    tally, rng = Tally(case.name, passes), np.random.default_rng([seed, CASES.index(case), passes])
    effort = Effort(precision=0.015, max_draws=case.max_draws, passes=passes, deadline=inf)
    for _ in range(runs):
        for draws, found in enumerate(rounds(case, passes, rng), start=1):
            if draws in effort.looks:
                width = compare(FILL, 0, found).quoted.half_width
                if width is not None and width <= effort.precision:
                    break
        comparison = compare(FILL, 0, found)
        tally.draws.append(draws)
        tally.at_equal_speed.add(comparison.at_equal_speed)
        tally.means.add(comparison)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0].replace("%", "%%"))
    parser.add_argument("cases", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--passes", default=str(PASSES), help="one or more numbers")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    columns = f"{'held':>7} {'below':>6} {'above':>6} {'+-':>7} {'none':>5}"
    print(f"{'':<32} {'':>6} {'':>6} {'at equal speed':^36} {'of the means':^36}")
    print(f"{'case':<32} {'passes':>6} {'draws':>6} {columns} {columns}", flush=True)
    tallies = []
    for case in CASES:
        if args.cases and not any(part in case.name for part in args.cases):
            continue
        for passes in map(int, args.passes.split(",")):
            tallies.append(simulate(case, passes, args.runs, args.seed))
            print(tallies[-1].line(), flush=True)
    print(
        json.dumps(
            {
                "benchmark": "fidelity_coverage",
                "seed": args.seed,
                "cases": [asdict(tally) for tally in tallies],
            }
        )
    )
    held = [tally.at_equal_speed.coverage for tally in tallies]
    return 0 if all(TARGET[0] <= share <= TARGET[1] for share in held) else 1


if __name__ == "__main__":
    sys.exit(main())
