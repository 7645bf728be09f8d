"""Runs a grid: launches of the server, turns over the points, cohorts, until every point is precise enough.

Points take turns in random order, one cohort a turn, so that a slow minute of the machine falls on all of them. After
every cohort its steps and the document are on disk: whatever ends the run, finished repeats are kept.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from decodebench.bench.activity import Activity
from decodebench.bench.budget import Budget
from decodebench.bench.client import Client, CohortRequest, RequestFailed, describe_ranks
from decodebench.bench.donor_prompts import Text
from decodebench.bench.donor_set import DonorSet
from decodebench.bench.facts import EngineFacts, model_name
from decodebench.bench.grid import GridPoint
from decodebench.bench.outcome import Outcome
from decodebench.bench.point_state import PointPlan, PointState, line_of, unmeasured
from decodebench.bench.prompts import PromptSource
from decodebench.bench.resume import next_launch
from decodebench.bench.run_donors import donors_for, texts_of
from decodebench.bench.run_fidelity import compare_with_real_prefill, is_compared, kept_seconds
from decodebench.bench.running import Launch, Running
from decodebench.bench.settings import Settings
from decodebench.bench.stopping import interleave
from decodebench.errors import EngineFailed, UserError
from decodebench.report.progress import Moment, Progress
from decodebench.results.point import RepeatDetail
from decodebench.results.provenance import Engine
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store


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
        restore: Callable[[PointState], None],
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
        self._kept_s = kept_seconds(settings)
        self._launches = (0, 0)  # the one that runs, and how many of this run come after it
        self._start_s = 0.0  # what the last server start took, donors and all
        self._budget = Budget.of(settings.max_time_s, kept_s=self._kept_s)
        self._prompts = 0
        self._donors: DonorSet | None = None
        self._moment = Moment("starting")
        self._moment_at = time.monotonic()

    def run(self) -> RunDocument:
        """Measure. On an interrupt or a dead engine the document is finished first, then the error goes on."""
        first = next_launch(self._document)
        try:
            end = first + self._settings.launches
            for launch in range(first, end):
                if self._states and not self._open(launch):
                    break
                self._launches, begun = (launch, end - launch - 1), time.monotonic()
                with self._launch(self._progress) as running:
                    self._run_launch(launch, running, last=end - 1, begun=begun)
        except EngineFailed as error:
            self._finish(RunStatus.FAILED, error.what, error.cause or None)
            raise
        except UserError as error:  # what only the server shows to be wrong
            self._finish(RunStatus.FAILED, error.message)
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

    def _run_launch(self, launch: int, running: Running, *, last: int, begun: float) -> None:
        self._progress.show(Moment("asking the server what it is", left_s=self._left_s()))
        descriptions = describe_ranks(running.target)
        if not descriptions:
            self._unverified(running)
            return
        facts = EngineFacts.of(descriptions)
        facts.check_fill(self._settings.fill)
        self._plan(facts, running)
        assert self._engine is not None, "planned"
        name = f"decodebench-{self._document.started.timestamp():.0f}-{launch}"
        read, donor_text = texts_of(running, self._settings, self._engine.weights == "real")
        if self._settings.donors is not None:
            self._progress.show(Moment("prefilling donors", left_s=self._left_s()))
        with donors_for(
            running, facts, self._settings, self._states, donor_text, launch=launch, name=name
        ) as made:
            self._donors = None if made is None else made.donors
            if made is not None:
                self._document = self._document.model_copy(
                    update={"donors": (*self._document.donors, made.phase)}
                )
                self._run_log(f"donors: {made.phase}")
            self._start_s = time.monotonic() - begun
            self._take_turns(launch, running, name)
            if launch == last or not self._open(launch + 1):
                self._compare(launch, running, facts, read, name)

    def _take_turns(self, launch: int, running: Running, salt: str) -> None:
        """Cohorts of one server until no point of the launch needs more."""
        assert self._facts is not None, "planned"
        client = Client(
            running.target,
            PromptSource.for_engine(self._settings.seed, self._facts),
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

    def _compare(
        self, launch: int, running: Running, facts: EngineFacts, read: Text | None, name: str
    ) -> None:
        """The fill against real prefill, at one point of the grid."""
        if not self._settings.fidelity or any(is_compared(state.fidelity) for state in self._states):
            return
        state = compare_with_real_prefill(
            running,
            facts,
            self._settings,
            self._states,
            self._donors,
            read,
            self._progress,
            launch=launch,
            name=name,
            directory=self._store.directory,
            on_round=lambda: self._write(RunStatus.RUNNING),
        )
        if state is None:
            reason = "no point of the grid fits with requests that are really prefilled"
            self._document = self._document.model_copy(update={"fidelity_reason": reason})
        else:
            self._run_log(f"{state.point}: fidelity {state.fidelity}")

    def _open(self, launch: int) -> list[PointState]:
        return [state for state in self._states if state.needs_more(launch, self._settings)]

    def _plan(self, facts: EngineFacts, running: Running) -> None:
        """Settle windows and fits with the first server; later launches of the run must be the same engine."""
        if self._facts is not None:
            if facts.limits != self._facts.limits:
                raise EngineFailed(
                    "this launch of the server has another KV cache than the first one",
                    f"{facts.limits} instead of {self._facts.limits}",
                )
            return
        states = [
            PointState(point, PointPlan.of(point, facts.limits, facts.periods, self._settings.window_steps))
            for point in self._points
        ]
        for state in states:  # raises if they cannot be gone on with: then the document stays what it was
            self._restore(state)
        self._facts, self._engine, self._states = facts, running.record(facts), states
        self._write(RunStatus.RUNNING)

    def _measure(self, client: Client, launch: int, state: PointState, *, discarded: bool) -> None:
        """One cohort of a point, kept on disk before the next."""
        assert self._facts is not None, "planned"
        assert state.plan.window is not None, "a point without a window is not measured"
        repeat = state.next_repeat(launch)
        doing = "warming up" if discarded else "measuring"
        self._moment = Moment(
            doing, str(state.point), repeat, filled=0, of=state.point.batch_size, left_s=self._left_s()
        )
        self._moment_at = time.monotonic()
        self._progress.show(self._moment)
        cohort = CohortRequest(
            name=f"p{state.point.index}l{launch}r{repeat}-{self._prompts}",
            size=state.point.batch_size,
            ranks=len(self._facts.ranks),
            plan=state.plan.window,
            first_prompt=self._prompts,
            stall_timeout_s=self._settings.stall_timeout_s,
            donors=self._donors,
            audit=self._settings.audit,
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
        self._store.append_repeat(state.key(launch, repeat), outcome.judged.rank_steps())
        state.add(outcome.detail(repeat, discarded=discarded), outcome.judged)

    def _unverified(self, running: Running) -> None:
        """A server without our connector: nothing can be held, filled or seen from inside."""
        self._engine = Engine(model=model_name(running.target.model))
        reason = "the server does not run decodebench's connector: no cohorts, no step times (decodebench serve has it)"
        self._document = self._document.model_copy(
            update={
                "engine": self._engine,
                "points": tuple(
                    unmeasured(point, self._settings, Status.UNVERIFIED, reason) for point in self._points
                ),
            }
        )

    def _show_activity(self, activity: Activity) -> None:
        moment = self._moment
        filled = min(moment.of or 0, activity.filling + activity.running)
        left_s = None if moment.left_s is None else moment.left_s - (time.monotonic() - self._moment_at)
        self._progress.show(replace(moment, filled=filled, left_s=left_s))

    def _left_s(self) -> float | None:
        """Seconds to the end of the run, at most."""
        launch, later = self._launches
        repeats = [(state, state.repeats_left(launch, later, self._settings)) for state in self._states]
        return self._budget.left(repeats, self._start_s * later)

    def _out_of_time(self, state: PointState) -> bool:
        """Whether another repeat of this point would end after the time that was given."""
        if not self._budget.exceeded_by(state, self._states):
            return False
        kept = f", {self._kept_s:g} s are kept for --fidelity" if self._kept_s else ""
        state.stopped = f"the time budget of {self._settings.max_time_s:g} s (--max-time) was used up{kept}"
        return True

    def _write(self, status: RunStatus) -> None:
        self._document = self._current(status, None)
        self._store.write(self._document)

    def _finish(self, status: RunStatus, reason: str | None, cause: str | None = None) -> None:
        self._document = self._current(status, reason).model_copy(update={"cause": cause})
        self._store.finish(self._document)

    def _current(self, status: RunStatus, reason: str | None) -> RunDocument:
        engine = self._engine or self._document.engine
        update: dict[str, Any] = {"status": status, "reason": reason, "engine": engine}
        if status is not RunStatus.RUNNING:
            update["finished"] = datetime.now(UTC)
        if self._facts is not None and self._engine is not None:
            update["points"] = tuple(
                state.record(self._settings, self._facts, self._engine) for state in self._states
            )
        elif not self._document.points:
            failed = Status.FAILED if status is RunStatus.FAILED else Status.NOT_RUN
            why = (reason or "the run ended before it").splitlines()[0]
            update["points"] = tuple(unmeasured(point, self._settings, failed, why) for point in self._points)
        return self._document.model_copy(update=update)
