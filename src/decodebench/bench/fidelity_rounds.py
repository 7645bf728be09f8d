"""Rounds on one server: cohorts that are really prefilled take turns with cohorts of each fill, until it is enough.

A draw of prompts is measured in a few rounds, its passes. Filled requests never find a cached block, so that every page
is filled each time. Really prefilled ones find their prompts' blocks of the draw's first prefill, where prefixes are
cached and were not evicted: the KV is the same, and most of a round's time is saved.

Both `decodebench fidelity` and `run --fidelity` measure here, and only here.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from decodebench.bench.client import Client, CohortRequest, RequestFailed, Target
from decodebench.bench.donor_prompts import Text
from decodebench.bench.facts import EngineFacts
from decodebench.bench.fidelity import REAL, Figures, Mode, Round, Spoiled, compare, figures_of, real_plan
from decodebench.bench.grid import GridPoint
from decodebench.bench.outcome import Outcome
from decodebench.bench.point_state import PointPlan
from decodebench.bench.prompts import PromptSource
from decodebench.bench.running import Running
from decodebench.bench.stopping import FIRST_LOOK, Stopping
from decodebench.bench.text_prompts import TextPrompts
from decodebench.bench.tokenizer import tokenised
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.limits import Limits
from decodebench.report.progress import Moment, Progress
from decodebench.results.fidelity import Comparison

MOST_SPOILED = 2
"""A point is given up when it has more than this many spoiled rounds for every other one, and ten in all."""


@dataclass(frozen=True, slots=True)
class Effort:
    """When the rounds of a point are enough."""

    precision: float  # half-width of an error's interval, a share of the step time
    max_draws: int  # of prompts
    passes: int  # rounds with the prompts of one draw
    deadline: float  # on the monotonic clock, seconds
    later_s: float = 0.0  # what comes behind these rounds may take

    @property
    def max_rounds(self) -> int:
        return self.max_draws * self.passes

    @property
    def looks(self) -> tuple[int, ...]:
        """Draws after which an error may be found precise enough: five may look so by luck."""
        return tuple(look for look in Stopping(self.precision, self.max_draws).looks() if look > FIRST_LOOK)


@dataclass(slots=True, eq=False)
class Compared:
    """A point on one server."""

    point: GridPoint
    window: WindowPlan
    rounds: list[Round] = field(default_factory=list)
    longest_s: float = 0.0  # of its rounds
    first_prompt: int = 0  # of the draw that is measured

    @property
    def spoiled(self) -> int:
        return sum(each.spoiled for each in self.rounds)


def real_misfit(plan: PointPlan, batch: int, limits: Limits) -> str | None:
    """Why requests that are filled, or such that are really prefilled, do not fit at a point; None if both do."""
    if plan.misfit is not None or plan.window is None:
        return plan.misfit or "there is no window"
    real = real_plan(plan.window, batch, limits)
    return limits.misfit([real.prompt_len + real.max_tokens] * batch)


def prompts_of(
    target: Target, facts: EngineFacts, read: Text | None, seed: int
) -> PromptSource | TextPrompts:
    """Where the prompts of all arms come from: a text, or random ids."""
    if read is not None:
        return TextPrompts(seed, tokenised(target, read))
    return PromptSource.for_engine(seed, facts)


class Rounds:
    """The rounds of one server.

    Args:
        name: goes before cache salts; nothing else on the server has it.
        fills: the arms beside real prefill.
    """

    def __init__(
        self,
        running: Running,
        facts: EngineFacts,
        prompts: PromptSource | TextPrompts,
        fills: Sequence[Mode],
        effort: Effort,
        progress: Progress,
        *,
        name: str,
        launch: int,
        seed: int,
    ) -> None:
        self._facts = facts
        self._modes = (Mode(REAL), *fills)
        self._effort = effort
        self._progress = progress
        self._launch = launch
        self._seed = seed
        self._name = name
        self._running = running
        self._source = prompts
        self._prompts = 0
        self._cohorts = 0
        self._points: tuple[Compared, ...] = ()

    def run(self, points: Sequence[Compared], on_round: Callable[[Compared], None]) -> None:
        """Measure until every error is precise enough, or time, rounds or patience are over."""
        self._points = tuple(points)
        for point in points:  # the first cohort of a batch size warms the engine up
            self._show("warming up for the comparison", point, None)
            self._draw(point)
            for mode in self._modes:
                self._cohort(mode, point)
        turn = 0
        while ready := [point for point in points if self._needs_more(point) and self._has_time(point)]:
            for point in ready:
                if self._has_time(point):
                    self._round(point, turn)
                    on_round(point)
            turn += 1

    def comparisons(self, point: Compared) -> tuple[Comparison, ...]:
        """Every fill against real prefill, over the rounds so far."""
        return tuple(
            compare(mode.name, self._launch, point.rounds) for mode in self._modes if not mode.is_real
        )

    def _round(self, point: Compared, turn: int) -> None:
        self._show("comparing with real prefill", point, turn)
        begun = time.monotonic()
        draw, done = divmod(len(point.rounds), self._effort.passes)
        if draw and not done:
            self._draw(point)
        order = list(self._modes)
        Random(f"{self._seed}/{self._launch}/{point.point.index}/{turn}").shuffle(order)
        point.rounds.append(Round(draw, {mode.name: self._cohort(mode, point) for mode in order}))
        point.longest_s = max(point.longest_s, time.monotonic() - begun)

    def _draw(self, point: Compared) -> None:
        """Prompts that no cohort had before."""
        point.first_prompt = self._prompts
        self._prompts += point.point.batch_size * len(self._facts.ranks)

    def _salt(self, mode: Mode) -> str:
        return f"{self._name}-real" if mode.is_real else f"{self._name}-filled-{self._cohorts}"

    def _cohort(self, mode: Mode, point: Compared) -> Figures | Spoiled:
        size, facts = point.point.batch_size, self._facts
        self._cohorts += 1
        cohort = CohortRequest(
            name=f"f{self._launch}-{self._cohorts}",
            size=size,
            ranks=len(facts.ranks),
            plan=real_plan(point.window, size, facts.limits) if mode.is_real else point.window,
            first_prompt=point.first_prompt,
            donors=mode.donors,
            prefill=mode.is_real,
            with_tokens=True,
        )
        client = Client(
            self._running.target,
            self._source,
            salt=self._salt(mode),
            check=self._running.check,
            on_activity=lambda _: None,
        )
        try:
            answers = client.send(cohort)
        except RequestFailed as error:
            return Spoiled(str(error))
        outcome = Outcome.of(self._launch, cohort, answers, facts.limits, facts.filled_groups)
        return figures_of(cohort, answers, outcome)

    def _needs_more(self, point: Compared) -> bool:
        effort = self._effort
        draws, passes = divmod(len(point.rounds), effort.passes)
        if draws >= effort.max_draws:
            return False
        if point.spoiled >= 10 and point.spoiled > MOST_SPOILED * (len(point.rounds) - point.spoiled):
            return False
        if passes or draws not in effort.looks:
            return True
        widths = [each.quoted.half_width for each in self.comparisons(point)]
        return not all(width is not None and width <= effort.precision for width in widths)

    def _has_time(self, point: Compared) -> bool:
        """Whether another round would end before the deadline, as far as is known."""
        return 0 < self._effort.deadline - time.monotonic() >= point.longest_s

    def _show(self, doing: str, point: Compared, turn: int | None) -> None:
        self._progress.show(Moment(doing, point=str(point.point), repeat=turn, left_s=self._left_s()))

    def _left_s(self) -> float:
        """Seconds to the end at most: every point takes all the rounds it may have, within the time."""
        rest = self._effort.deadline - time.monotonic()
        open_points = [point for point in self._points if self._needs_more(point)]
        if all(point.rounds for point in open_points):
            rest = min(rest, sum(point.longest_s * self._rounds_left(point) for point in open_points))
        return max(0.0, rest) + self._effort.later_s

    def _rounds_left(self, point: Compared) -> int:
        return self._effort.max_rounds - len(point.rounds)
