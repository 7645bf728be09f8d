"""Runs the rounds of `decodebench fidelity` on one server after the other, until the errors are known well enough."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from decodebench.bench.client import Client, CohortRequest, RequestFailed, describe_ranks
from decodebench.bench.donor_prompts import Text
from decodebench.bench.donors import DonorOptions, DonorSet, prefill_donors, tokenised
from decodebench.bench.facts import EngineFacts
from decodebench.bench.fidelity import REAL, Figures, Mode, Round, Spoiled, compare, figures_of, real_plan
from decodebench.bench.grid import GridPoint
from decodebench.bench.outcome import Outcome
from decodebench.bench.point_state import PointPlan
from decodebench.bench.prompts import PromptSource
from decodebench.bench.runner import Launch, Running
from decodebench.bench.stopping import Stopping
from decodebench.bench.text_prompts import TextPrompts
from decodebench.errors import EngineFailed
from decodebench.report.progress import Moment, Progress
from decodebench.results.fidelity import Comparison, FidelityDocument, FidelityPoint

COHORT_TIMEOUT_S = 600.0
STALL_TIMEOUT_S = 300.0
MOST_SPOILED = 2
"""A point is given up when it has more than this many spoiled rounds for every one that counts, and ten in all."""


@dataclass(frozen=True, slots=True)
class FidelitySettings:
    points: tuple[GridPoint, ...]
    precision: float  # half-width of an error's interval, a share of the step time
    max_rounds: int
    max_time_s: float  # for all servers together
    seed: int
    window_steps: int
    donors: DonorOptions
    donor_counts: tuple[int | None, ...]  # arms of a donor fill; None: one donor a request

    @property
    def looks(self) -> tuple[int, ...]:
        """Rounds after which an error may be found precise enough."""
        return tuple(Stopping(self.precision, self.max_rounds).looks())


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server to start, and what it compares with a real prefill."""

    launch: Launch
    numbers: str | None  # name of the fill by its own numbers, if that is compared
    with_donors: bool


@dataclass(slots=True, eq=False)
class _Measured:
    """A point on one server."""

    point: GridPoint
    plan: PointPlan
    rounds: list[Round] = field(default_factory=list)

    @property
    def spoiled(self) -> int:
        return sum(any(isinstance(arm, Spoiled) for arm in each.arms.values()) for each in self.rounds)


class FidelityRunner:
    """One `decodebench fidelity`. `document` is complete after every round and handed to `keep`."""

    def __init__(
        self,
        settings: FidelitySettings,
        document: FidelityDocument,
        progress: Progress,
        keep: Callable[[FidelityDocument], None],
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._keep = keep
        self._prompts = 0
        self._found: dict[int, dict[tuple[int, str], Comparison]] = {}  # point -> (launch, fill) -> its error
        self._reasons: dict[int, str] = {}
        self.document = document

    def run(self, servers: Sequence[ServerPlan]) -> FidelityDocument:
        """Measure on every server in turn, each in its share of the time."""
        for number, plan in enumerate(servers):
            with plan.launch(self._progress) as running:
                self._measure_on(number, plan, running, self._settings.max_time_s / len(servers))
        return self.document

    def _measure_on(self, launch: int, plan: ServerPlan, running: Running, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        descriptions = describe_ranks(running.target)
        if not descriptions:
            raise EngineFailed("the server does not run decodebench's connector", "nothing can be compared")
        facts = EngineFacts.of(descriptions)
        engine = facts.record(
            recipe=running.recipe,
            weights=running.weights,
            shims=running.shims,
            hma_reason=running.hma_reason,
        )
        self.document = self.document.model_copy(update={"engine": engine})
        measured = [state for point in self._settings.points if (state := self._planned(point, facts))]
        if not measured:
            self._write()
            return
        name = f"decodebench-fidelity-{self.document.started.timestamp():.0f}-{launch}"
        prompts, donor_text = self._texts(running, facts, engine.weights == "real")
        modes = [Mode(REAL)] + ([Mode(plan.numbers)] if plan.numbers else [])
        if plan.with_donors:
            modes += self._donor_modes(running, facts, measured, launch, name, donor_text)
        clients = {
            is_real: Client(
                running.target,
                prompts,
                salt=f"{name}-{'real' if is_real else 'filled'}",
                check=running.check,
                on_activity=lambda _: None,
            )
            for is_real in (True, False)
        }
        self._rounds(launch, clients, facts, modes, measured, deadline)

    def _planned(self, point: GridPoint, facts: EngineFacts) -> _Measured | None:
        plan = PointPlan.of(point, facts.limits, facts.periods, self._settings.window_steps)
        reason = plan.misfit
        if plan.window is not None:
            real = real_plan(plan.window, point.batch_size, facts.limits)
            ends = [real.prompt_len + real.max_tokens] * point.batch_size
            reason = reason or facts.limits.misfit(ends)
        if reason is not None:
            self._reasons[point.index] = f"does not fit: {reason}"
            return None
        return _Measured(point, plan)

    def _texts(
        self, running: Running, facts: EngineFacts, has_real_weights: bool
    ) -> tuple[PromptSource | TextPrompts, Text | None]:
        """Where prompts come from, and what donors read: two halves of a text for real weights, else random ids."""
        text = self._settings.donors.text or (Text.shipped() if has_real_weights else None)
        if text is None:
            first = facts.first
            source = PromptSource.of(self._settings.seed, first["vocab_size"], first["special_token_ids"])
            return source, None
        read, donors = text.halves()
        ids = tokenised(running.target, read)
        return TextPrompts(self._settings.seed, ids), donors

    def _donor_modes(
        self,
        running: Running,
        facts: EngineFacts,
        measured: Sequence[_Measured],
        launch: int,
        name: str,
        text: Text | None,
    ) -> list[Mode]:
        self._progress.show(Moment("prefilling donors"))
        asked = self._settings.donor_counts
        largest = max(state.point.batch_size for state in measured)
        counts = [count for count in asked if count is not None]
        options = self._settings.donors
        made = prefill_donors(
            running.target,
            facts,
            DonorOptions(None if None in asked else max(counts), options.length, text),
            batch=max([largest, *counts]),
            longest=max(state.plan.window.prompt_len for state in measured if state.plan.window),
            seed=self._settings.seed,
            launch=launch,
            name=name,
            has_real_weights=False,
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

    def _rounds(
        self,
        launch: int,
        clients: dict[bool, Client],
        facts: EngineFacts,
        modes: Sequence[Mode],
        measured: Sequence[_Measured],
        deadline: float,
    ) -> None:
        for state in measured:  # the first cohort of a batch size warms the engine up
            self._progress.show(
                Moment("warming up", point=str(state.point), left_s=deadline - time.monotonic())
            )
            for mode in modes:
                self._cohort(clients, facts, mode, state, launch)
        number = 0
        while (left := deadline - time.monotonic()) > 0:
            open_points = [state for state in measured if self._needs_more(launch, modes, state)]
            if not open_points:
                break
            for state in open_points:
                if deadline - time.monotonic() <= 0 and state.rounds:
                    continue
                self._progress.show(Moment("comparing", point=str(state.point), repeat=number, left_s=left))
                order = list(modes)
                Random(f"{self._settings.seed}/{launch}/{state.point.index}/{number}").shuffle(order)
                arms = {mode.name: self._cohort(clients, facts, mode, state, launch) for mode in order}
                state.rounds.append(Round(arms))
                self._note(launch, modes, state)
            number += 1

    def _cohort(
        self, clients: dict[bool, Client], facts: EngineFacts, mode: Mode, state: _Measured, launch: int
    ) -> Figures | Spoiled:
        assert state.plan.window is not None, "planned"
        size = state.point.batch_size
        cohort = CohortRequest(
            name=f"f{launch}-{self._prompts}",
            size=size,
            ranks=len(facts.ranks),
            plan=real_plan(state.plan.window, size, facts.limits) if mode.is_real else state.plan.window,
            first_prompt=self._prompts,
            timeout_s=COHORT_TIMEOUT_S,
            stall_timeout_s=STALL_TIMEOUT_S,
            donors=mode.donors,
            prefill=mode.is_real,
            with_tokens=True,
        )
        self._prompts += size * cohort.ranks
        try:
            answers = clients[mode.is_real].send(cohort)
        except RequestFailed as error:
            return Spoiled(str(error))
        return figures_of(
            cohort, answers, Outcome.of(launch, cohort, answers, facts.limits, facts.filled_groups)
        )

    def _needs_more(self, launch: int, modes: Sequence[Mode], state: _Measured) -> bool:
        found = [compare(mode.name, launch, state.rounds) for mode in modes if not mode.is_real]
        valid = min(each.rounds for each in found)
        if valid >= self._settings.max_rounds:
            return False
        if state.spoiled >= 10 and state.spoiled > MOST_SPOILED * valid:
            return False
        widths = [each.half_width for each in found]
        precise = all(width is not None and width <= self._settings.precision for width in widths)
        return not (precise and valid in self._settings.looks)

    def _note(self, launch: int, modes: Sequence[Mode], state: _Measured) -> None:
        for mode in modes:
            if not mode.is_real:
                found = compare(mode.name, launch, state.rounds)
                self._found.setdefault(state.point.index, {})[launch, mode.name] = found
        self._write()

    def _write(self) -> None:
        points = tuple(
            FidelityPoint(
                batch_size=point.batch_size,
                context_len=point.context_len,
                comparisons=tuple(self._found.get(point.index, {}).values()),
                reason=self._reasons.get(point.index),
            )
            for point in self._settings.points
        )
        self.document = self.document.model_copy(update={"points": points})
        self._keep(self.document)
