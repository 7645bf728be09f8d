"""Runs a grid: launches of the server, turns over the points, cohorts, until every point is precise enough.

Points take turns in random order, one cohort a turn, so that a slow minute of the machine falls on all of them. After
every cohort its steps and the document are on disk: whatever ends the run, finished repeats are kept.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from decodebench.bench.activity import Activity
from decodebench.bench.budget import Budget
from decodebench.bench.client import Client, CohortRequest, RequestFailed, Target, describe_ranks
from decodebench.bench.donors import DonorSet, forget_donors, prefill_donors
from decodebench.bench.facts import EngineFacts, model_name
from decodebench.bench.grid import GridPoint
from decodebench.bench.outcome import Outcome
from decodebench.bench.point_state import PointPlan, PointState, line_of, unmeasured
from decodebench.bench.prompts import PromptSource
from decodebench.bench.settings import Settings
from decodebench.bench.stopping import interleave
from decodebench.errors import EngineFailed
from decodebench.report.progress import Moment, Progress
from decodebench.results.point import RepeatDetail
from decodebench.results.provenance import Engine
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. `check` raises `EngineFailed` once it has died."""

    target: Target
    check: Callable[[], None]
    recipe: str | None = None
    weights: str | None = None
    shims: tuple[str, ...] = ()
    hma_reason: str | None = None
    is_ours: bool = True  # it is stopped when we are done


Launch = Callable[[Progress], AbstractContextManager[Running]]
"""Starts (or attaches to) the server and stops it at the end of the block."""


class Runner:
    """One run. The document it works on is complete after every cohort; `run` returns the last one."""

    def __init__(
        self,
        settings: Settings,
        points: tuple[GridPoint, ...],
        store: Store,
        document: RunDocument,
        launch: Launch,
        progress: Progress,
        run_log: Callable[[str], None],
        restore: Callable[[PointState], None] = lambda state: None,
    ) -> None:
        self._settings = settings
        self._points = points
        self._store = store
        self._document = document
        self._launch = launch
        self._progress = progress
        self._run_log = run_log
        self._restore = restore
        self._states: list[PointState] = []
        self._facts: EngineFacts | None = None
        self._engine: Engine | None = None
        self._budget = Budget.of(settings.max_time_s)
        self._prompts = 0
        self._donors: DonorSet | None = None
        self._moment = Moment("starting")

    def run(self) -> RunDocument:
        """Measure. On an interrupt or a dead engine the document is finished first, then the error goes on."""
        first = 1 + max(
            (detail.launch for point in self._document.points for detail in point.repeat_details), default=-1
        )
        try:
            for launch in range(first, first + self._settings.launches):
                if self._states and not self._open(launch):
                    break
                with self._launch(self._progress) as running:
                    self._run_launch(launch, running)
        except EngineFailed as error:
            self._finish(RunStatus.FAILED, error.what + (f": {error.cause}" if error.cause else ""))
            raise
        except KeyboardInterrupt:
            self._finish(RunStatus.INTERRUPTED, "interrupted")
            raise
        self._finish(RunStatus.FINISHED, None)
        return self._document

    @property
    def document(self) -> RunDocument:
        """The document as it stands, also after an error."""
        return self._document

    def _run_launch(self, launch: int, running: Running) -> None:
        self._progress.show(Moment("asking the server what it is", left_s=self._budget.left(self._states)))
        descriptions = describe_ranks(running.target)
        if not descriptions:
            self._unverified(running)
            return
        self._plan(EngineFacts.of(descriptions), running)
        assert self._facts is not None, "planned"
        salt = f"decodebench-{self._document.started.timestamp():.0f}-{launch}"
        self._make_donors(launch, running, EngineFacts.of(descriptions), salt)
        try:
            self._take_turns(launch, running, salt)
        finally:
            self._drop_donors(running)

    def _take_turns(self, launch: int, running: Running, salt: str) -> None:
        """Cohorts of one server until no point of the launch needs more."""
        assert self._facts is not None, "planned"
        client = Client(
            running.target,
            PromptSource.of(
                self._settings.seed, self._facts.first["vocab_size"], self._facts.first["special_token_ids"]
            ),
            salt=salt,
            check=running.check,
            on_activity=self._show_activity,
        )
        warm: set[int] = set()
        turn = 0
        while open_points := self._open(launch):
            for state in interleave(open_points, self._settings.seed, turn):
                padded = self._facts.padded_batch(state.point.batch_size) or state.point.batch_size
                if self._out_of_time(state):
                    continue
                if padded not in warm:
                    self._measure(client, launch, state, discarded=True)
                    warm.add(padded)
                self._measure(client, launch, state, discarded=False)
            turn += 1

    def _make_donors(self, launch: int, running: Running, facts: EngineFacts, name: str) -> None:
        """Before the first cohort of a launch: what fills its requests, where that is donors."""
        fitting = [
            state for state in self._states if state.plan.misfit is None and state.plan.window is not None
        ]
        if self._settings.donors is None or not fitting:
            return
        assert self._engine is not None, "planned"
        self._progress.show(Moment("prefilling donors", left_s=self._budget.left(self._states)))
        made = prefill_donors(
            running.target,
            facts,
            self._settings.donors,
            batch=max(state.point.batch_size for state in fitting),
            longest=max(state.plan.window.prompt_len for state in fitting if state.plan.window is not None),
            seed=self._settings.seed,
            launch=launch,
            name=name,
            has_real_weights=self._engine.weights == "real",
            check=running.check,
        )
        self._donors = made.donors
        self._document = self._document.model_copy(update={"donors": (*self._document.donors, made.phase)})
        self._run_log(f"donors: {made.phase}")

    def _drop_donors(self, running: Running) -> None:
        if self._donors is not None and not running.is_ours:
            with suppress(RequestFailed):
                forget_donors(running.target, self._donors, len(self._facts.ranks if self._facts else ()))
        self._donors = None

    def _open(self, launch: int) -> list[PointState]:
        return [state for state in self._states if state.needs_more(launch, self._settings)]

    def _plan(self, facts: EngineFacts, running: Running) -> None:
        """Settle windows and fits with the first server; later launches of the run must be the same engine."""
        engine = facts.record(
            recipe=running.recipe, weights=running.weights, shims=running.shims, hma_reason=running.hma_reason
        )
        if self._facts is not None:
            if facts.limits != self._facts.limits:
                raise EngineFailed(
                    "this launch of the server has another KV cache than the first one",
                    f"{facts.limits} instead of {self._facts.limits}",
                )
            return
        self._facts, self._engine = facts, engine
        self._states = [
            PointState(point, PointPlan.of(point, facts.limits, facts.periods, self._settings.window_steps))
            for point in self._points
        ]
        for state in self._states:
            self._restore(state)
        self._write(RunStatus.RUNNING)

    def _measure(self, client: Client, launch: int, state: PointState, *, discarded: bool) -> None:
        """One cohort of a point, kept on disk before the next."""
        assert self._facts is not None, "planned"
        assert state.plan.window is not None, "a point without a window is not measured"
        repeat = state.next_repeat(launch)
        doing = "warming up" if discarded else "measuring"
        self._moment = Moment(
            doing,
            point=str(state.point),
            repeat=repeat,
            filled=0,
            of=state.point.batch_size,
            left_s=self._budget.left(self._states),
        )
        self._progress.show(self._moment)
        cohort = CohortRequest(
            name=f"p{state.point.index}l{launch}r{repeat}-{self._prompts}",
            size=state.point.batch_size,
            ranks=len(self._facts.ranks),
            plan=state.plan.window,
            first_prompt=self._prompts,
            timeout_s=self._settings.cohort_timeout_s,
            stall_timeout_s=self._settings.stall_timeout_s,
            donors=self._donors,
        )
        self._prompts += cohort.size * cohort.ranks
        begun = time.monotonic()
        try:
            answers = client.send(cohort)
        except RequestFailed as error:
            state.add(
                RepeatDetail(
                    launch=launch, repeat=repeat, status=Status.FAILED, reason=str(error), discarded=discarded
                ),
                None,
            )
        else:
            outcome = Outcome.of(launch, cohort, answers, self._facts.limits, self._facts.filled_groups)
            self._keep(state, outcome, launch, repeat, discarded)
        state.seconds = time.monotonic() - begun
        self._run_log(f"{state.point}: {line_of(state.details[-1])}")
        self._write(RunStatus.RUNNING)

    def _keep(self, state: PointState, outcome: Outcome, launch: int, repeat: int, discarded: bool) -> None:
        detail = outcome.judged.detail(repeat, discarded=discarded, filled=outcome.filled)
        if outcome.fault is not None:
            detail = detail.model_copy(
                update={"status": Status.INVALID, "reason": outcome.fault, "rule": None}
            )
        self._store.append_repeat(state.key(launch, repeat), outcome.judged.rank_steps())
        state.add(detail, outcome.judged)

    def _unverified(self, running: Running) -> None:
        """A server without our connector: nothing can be held, filled or seen from inside."""
        self._engine = Engine(model=model_name(running.target.model))
        reason = "the server does not run decodebench's connector: no cohorts, no step times (decodebench serve has it)"
        self._document = self._document.model_copy(
            update={
                "engine": self._engine,
                "points": tuple(unmeasured(point, Status.UNVERIFIED, reason) for point in self._points),
            }
        )

    def _show_activity(self, activity: Activity) -> None:
        moment = self._moment
        filled = min(moment.of or 0, activity.filling + activity.running)
        self._progress.show(
            Moment(
                moment.doing, moment.point, moment.repeat, filled, moment.of, self._budget.left(self._states)
            )
        )

    def _out_of_time(self, state: PointState) -> bool:
        """Whether another repeat of this point would end after the time that was given."""
        if not self._budget.exceeded_by(state, self._states):
            return False
        state.stopped = f"the time budget of {self._settings.max_time_s:g} s (--max-time) was used up"
        return True

    def _write(self, status: RunStatus) -> None:
        self._document = self._current(status, None)
        self._store.write(self._document)

    def _finish(self, status: RunStatus, reason: str | None) -> None:
        self._document = self._current(status, reason)
        self._store.finish(self._document)

    def _current(self, status: RunStatus, reason: str | None) -> RunDocument:
        update: dict[str, Any] = {"status": status, "reason": reason, "engine": self._engine}
        if status is not RunStatus.RUNNING:
            update["finished"] = datetime.now(UTC)
        if self._facts is not None and self._engine is not None:
            update["points"] = tuple(
                state.record(self._settings, self._facts, self._engine) for state in self._states
            )
        elif not self._document.points:
            failed = Status.FAILED if status is RunStatus.FAILED else Status.NOT_RUN
            why = reason or "the run ended before it"
            update["points"] = tuple(unmeasured(point, failed, why) for point in self._points)
        return self._document.model_copy(update=update)
