"""One point of the grid while a run lasts: what is planned, what has been measured, and whether it needs more.

planned -> repeats, one a turn -> enough (precision reached, or given up) -> the record of the result
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from decodebench.bench.facts import EngineFacts
from decodebench.bench.grid import GridPoint
from decodebench.bench.judged import JudgedRepeat, is_trusted, point_figures
from decodebench.bench.settings import Settings
from decodebench.bench.stats import Repeat
from decodebench.bench.window_plan import PlanError, WindowPlan
from decodebench.connector.limits import Limits
from decodebench.results.audit import AuditProof
from decodebench.results.fidelity import PointFidelity
from decodebench.results.parquet import RepeatKey
from decodebench.results.point import PlannedWindow, Point, RepeatDetail
from decodebench.results.provenance import Engine
from decodebench.results.status import Status

GIVE_UP_INVALID = 5
"""Invalid repeats in a row after which a point is given up: what spoils that many is no accident."""
GIVE_UP_FAILED = 2
ATTEMPTS_A_REPEAT = 2
"""Cohorts sent for every valid repeat that may be needed, before a point is left as it is."""


@dataclass(frozen=True, slots=True)
class PointPlan:
    """How a point will be measured, or why it cannot be (`misfit`)."""

    window: WindowPlan | None
    blocks_needed: int | None
    blocks_available: int
    misfit: str | None

    @classmethod
    def of(cls, point: GridPoint, limits: Limits, periods: Sequence[int], window_steps: int) -> "PointPlan":
        try:
            window = WindowPlan.of(
                point.context_len,
                max_model_len=limits.max_model_len,
                periods=periods,
                batches_in_flight=limits.batches_in_flight,
                window_steps=window_steps,
            )
        except PlanError as error:
            return cls(None, None, limits.usable_blocks, str(error))
        ends = [window.prompt_len + window.max_tokens] * point.batch_size
        return cls(window, limits.blocks_needed(ends), limits.usable_blocks, limits.misfit(ends))


@dataclass(slots=True, eq=False)
class PointState:
    point: GridPoint
    plan: PointPlan
    judged: list[JudgedRepeat] = field(default_factory=list)  # valid, not discarded
    details: list[RepeatDetail] = field(default_factory=list)
    seconds: float | None = None  # what the last repeat took, filling and all
    fidelity: PointFidelity | None = None
    stopped: str | None = None  # why there will be no more repeats in this run

    def next_repeat(self, launch: int) -> int:
        """Number of the next cohort in this launch."""
        return sum(detail.launch == launch for detail in self.details)

    def key(self, launch: int, repeat: int) -> RepeatKey:
        return RepeatKey(self.point.index, self.point.batch_size, self.point.context_len, launch, repeat)

    def needs_more(self, launch: int, settings: Settings) -> bool:
        """Whether another repeat in this launch would help."""
        if self.plan.misfit is not None or self.stopped is not None:
            return False
        finished = self.finished_launches(settings)
        if launch in finished or len(finished) >= settings.launches:
            return False
        attempts = sum(detail.launch == launch and not detail.discarded for detail in self.details)
        return attempts < ATTEMPTS_A_REPEAT * settings.max_repeats

    def repeats_left(self, launch: int, later: int, settings: Settings) -> int:
        """Cohorts that the point may get at most in this launch and the `later` ones of the run, if all are valid."""
        if self.plan.misfit is not None or self.stopped is not None:
            return 0
        here = 0
        if self.needs_more(launch, settings):
            here = settings.max_repeats - sum(judged.launch == launch for judged in self.judged)
        launches = settings.launches - len(self.finished_launches(settings)) - (here > 0)
        return here + max(0, min(later, launches)) * (1 + settings.max_repeats)  # with one that warms up

    def finished_launches(self, settings: Settings) -> set[int]:
        """Launches in which the point has all the repeats it needs."""
        repeats: dict[int, list[Repeat]] = {}
        for judged in self.judged:
            repeats.setdefault(judged.launch, []).append(judged.durations)
        return {launch for launch, mine in repeats.items() if settings.stopping.finished(mine)}

    def add(self, detail: RepeatDetail, judged: JudgedRepeat | None) -> None:
        """One more cohort; gives the point up when its last ones all went wrong."""
        self.details.append(detail)
        if detail.discarded:
            return
        if detail.status is Status.VALID:
            assert judged is not None, "a valid repeat has its steps"
            self.judged.append(judged)
            return
        counted = [each for each in self.details if not each.discarded]
        for status, limit in ((Status.FAILED, GIVE_UP_FAILED), (Status.INVALID, GIVE_UP_INVALID)):
            last = counted[-limit:]
            if len(last) == limit and all(each.status is status for each in last):
                self.stopped = f"given up after {limit} {status.value} repeats in a row: {detail.reason}"

    def record(self, settings: Settings, facts: EngineFacts, engine: Engine) -> Point:
        """The point as the result shows it now."""
        status, reason = self._outcome()
        window = self.plan.window
        total = self.point.batch_size * len(facts.ranks)
        figures = (
            point_figures(
                self.judged,
                batch_size_total=total,
                devices=len(engine.devices),
                drafts=engine.num_speculative_tokens,
            )
            if status is Status.VALID
            else {}
        )
        return Point(
            point=self.point.index,
            batch_size=self.point.batch_size,
            batch_size_total=total,
            context_len=self.point.context_len,
            status=status,
            reason=reason,
            precision_asked=settings.precision,
            content=settings.fill.content,
            seed=settings.seed,
            padded_batch=facts.padded_batch(self.point.batch_size),
            blocks_needed=self.plan.blocks_needed,
            blocks_available=self.plan.blocks_available,
            window=PlannedWindow.model_validate(asdict(window)) if window is not None else None,
            window_note=window.note if window is not None else None,
            audit=AuditProof.total([detail.audit for detail in self.details if detail.audit is not None]),
            fidelity=self.fidelity,
            provenance=engine.provenance,
            repeat_details=tuple(self.details),
            **figures,
        )

    def _outcome(self) -> tuple[Status, str | None]:
        if self.plan.misfit is not None:
            return Status.DOES_NOT_FIT, self.plan.misfit
        counted = [detail for detail in self.details if not detail.discarded]
        bad = [detail for detail in counted if detail.status is not Status.VALID]
        if is_trusted(len(self.judged), len(counted)):
            spoiled = f"{len(bad)} of {len(counted)} repeats left out: {bad[-1].reason}" if bad else None
            return Status.VALID, spoiled
        if not bad:
            return Status.NOT_RUN, self.stopped or "the run ended before it"
        reason = f"{len(bad)} of {len(counted)} repeats: {bad[-1].reason}"
        return bad[-1].status, reason


def line_of(detail: RepeatDetail) -> str:
    """A repeat in one line of the run's log."""
    kind = "warm-up cohort" if detail.discarded else "repeat"
    figure = (
        f", {detail.duration_ns / detail.steps / 1e6:.3f} ms a step"
        if detail.duration_ns and detail.steps
        else ""
    )
    reason = f": {detail.reason}" if detail.reason else ""
    return f"launch {detail.launch}, {kind} {detail.repeat}, {detail.status.value}{figure}{reason}"


def unmeasured(point: GridPoint, settings: Settings, status: Status, reason: str) -> Point:
    """A point of which nothing is known but why."""
    return Point(
        point=point.index,
        batch_size=point.batch_size,
        batch_size_total=point.batch_size,
        context_len=point.context_len,
        status=status,
        reason=reason,
        content=settings.fill.content,
        seed=settings.seed,
    )
