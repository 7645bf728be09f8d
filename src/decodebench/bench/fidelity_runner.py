"""Runs `decodebench fidelity`: one server after the other, each with the fills it can be compared with."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decodebench.bench.client import describe_ranks
from decodebench.bench.donor_prompts import Text
from decodebench.bench.donor_set import DonorOptions, DonorSet
from decodebench.bench.donors import prefill_donors
from decodebench.bench.facts import EngineFacts
from decodebench.bench.fidelity import Mode
from decodebench.bench.fidelity_rounds import Compared, Effort, Rounds, prompts_of, real_misfit
from decodebench.bench.fidelity_verify import kept
from decodebench.bench.grid import GridPoint
from decodebench.bench.point_state import PointPlan
from decodebench.bench.running import Launch, Running
from decodebench.bench.tokenizer import text_for
from decodebench.errors import EngineFailed
from decodebench.report.progress import Moment, Progress
from decodebench.results.fidelity import Comparison, FidelityDocument, FidelityPoint
from decodebench.results.rounds import MeasuredRound


@dataclass(frozen=True, slots=True)
class FidelitySettings:
    points: tuple[GridPoint, ...]
    precision: float  # half-width of an error's interval, a share of the step time
    max_draws: int  # of prompts, a point
    passes: int  # rounds with the prompts of one draw
    max_time_s: float  # for all servers together
    seed: int
    window_steps: int
    donors: DonorOptions
    donor_counts: tuple[int | None, ...]  # arms of a donor fill; None: one donor a request


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server to start, and what it compares with a real prefill."""

    launch: Launch
    numbers: str | None  # name of the fill by its own numbers, if that is compared
    with_donors: bool


class FidelityRunner:
    """One `decodebench fidelity`. Every round is handed to `keep_round`, then the document, complete, to `keep`."""

    def __init__(
        self,
        settings: FidelitySettings,
        document: FidelityDocument,
        progress: Progress,
        keep: Callable[[FidelityDocument], None],
        keep_round: Callable[[MeasuredRound], None],
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._keep = keep
        self._keep_round = keep_round
        self._found: dict[int, dict[int, tuple[Comparison, ...]]] = {}  # point -> launch -> its errors
        self._reasons: dict[int, str] = {}
        self.document = document

    def run(self, servers: Sequence[ServerPlan]) -> FidelityDocument:
        """Measure on every server in turn, each in its share of the time."""
        for number, plan in enumerate(servers):
            with plan.launch(self._progress) as running:
                seconds = self._settings.max_time_s / len(servers)
                later_s = seconds * (len(servers) - number - 1)
                self._measure_on(number, plan, running, seconds, later_s)
        return self.document

    def _measure_on(
        self, launch: int, plan: ServerPlan, running: Running, seconds: float, later_s: float
    ) -> None:
        settings = self._settings
        deadline = time.monotonic() + seconds
        effort = Effort(settings.precision, settings.max_draws, settings.passes, deadline, later_s)
        descriptions = describe_ranks(running.target)
        if not descriptions:
            raise EngineFailed("the server does not run decodebench's connector", "nothing can be compared")
        facts = EngineFacts.of(descriptions)
        engine = running.record(facts)
        self.document = self.document.model_copy(update={"engine": engine})
        points = [found for point in settings.points if (found := self._planned(point, facts)) is not None]
        if not points:
            self._write()
            return
        name = f"decodebench-fidelity-{self.document.started.timestamp():.0f}-{launch}"
        text = text_for(running.target, settings.donors.text, engine.weights == "real")
        read, donor_text = (None, None) if text is None else text.halves()
        fills = [Mode(plan.numbers)] if plan.numbers else []
        if plan.with_donors:
            fills += self._donor_modes(running, facts, points, launch, name, donor_text)
        prompts = prompts_of(running.target, facts, read, settings.seed)
        rounds = Rounds(
            running,
            facts,
            prompts,
            fills,
            effort,
            self._progress,
            name=name,
            launch=launch,
            seed=settings.seed,
        )
        rounds.run(points, lambda point: self._note(launch, point, rounds.comparisons(point)))

    def _planned(self, point: GridPoint, facts: EngineFacts) -> Compared | None:
        plan = PointPlan.of(point, facts.limits, facts.periods, self._settings.window_steps)
        reason = real_misfit(plan, point.batch_size, facts.limits)
        if reason is not None or plan.window is None:
            self._reasons[point.index] = f"does not fit: {reason}"
            return None
        return Compared(point, plan.window)

    def _donor_modes(
        self,
        running: Running,
        facts: EngineFacts,
        points: Sequence[Compared],
        launch: int,
        name: str,
        text: Text | None,
    ) -> list[Mode]:
        self._progress.show(Moment("prefilling donors"))
        asked, options = self._settings.donor_counts, self._settings.donors
        counts = [count for count in asked if count is not None]
        made = prefill_donors(
            running.target,
            facts,
            DonorOptions(None if None in asked else max(counts), options.length),
            text=text,
            batch=max([*(point.point.batch_size for point in points), *counts]),
            longest=max(point.window.prompt_len for point in points),
            seed=self._settings.seed,
            launch=launch,
            name=name,
            check=running.check,
        )
        self.document = self.document.model_copy(update={"donors": (*self.document.donors, made.phase)})
        ids, length = made.donors.ids, made.donors.length
        return [
            Mode("donor", made.donors)
            if count is None
            else Mode(f"donor:{min(count, len(ids))}", DonorSet(ids[:count], length))
            for count in asked
        ]

    def _note(self, launch: int, point: Compared, found: tuple[Comparison, ...]) -> None:
        self._keep_round(kept(point.point, launch, point.rounds[-1]))
        self._found.setdefault(point.point.index, {})[launch] = found
        self._write()

    def _write(self) -> None:
        points = tuple(
            FidelityPoint(
                batch_size=point.batch_size,
                context_len=point.context_len,
                comparisons=tuple(
                    each for found in self._found.get(point.index, {}).values() for each in found
                ),
                reason=self._reasons.get(point.index),
            )
            for point in self._settings.points
        )
        self.document = self.document.model_copy(update={"points": points})
        self._keep(self.document)
