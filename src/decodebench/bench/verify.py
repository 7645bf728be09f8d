"""Does a stored run say what its steps say? Every figure and verdict once more, from the stored steps.

What the step log cannot show is taken from the document: how a request failed, what the workers reported to have
filled, that a point did not fit. A repeat whose reason lies there (it names no `rule`) keeps its verdict.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isclose

from decodebench.bench.judged import JudgedRepeat, RankLog, is_trusted, point_figures
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.audit import AuditProof
from decodebench.results.parquet import RankSteps, RepeatKey
from decodebench.results.point import PlannedWindow, Point, RepeatDetail
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import repeat_keys

_VERDICT = ("status", "reason", "rule")
_FIGURES = ("window_start", "steps", "duration_ns", "measured_context", "prefill_tokens", "preemptions")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What the document says beside what the steps give."""

    where: str
    field: str
    stored: object
    recomputed: object

    def __str__(self) -> str:
        return f"{self.where}: {self.field} is {self.stored}, recomputed {self.recomputed}"


@dataclass(frozen=True, slots=True)
class Verification:
    points: int
    repeats: int  # judged again, from their steps
    mismatches: tuple[Mismatch, ...]


def verify(document: RunDocument, cohorts: Iterable[tuple[RepeatKey, Sequence[RankSteps]]]) -> Verification:
    """Recompute the document from its cohorts' steps (`Store.repeats()`), one cohort in memory at a time."""
    check = _Check(document)
    for key, ranks in cohorts:
        check.add(key, ranks)
    check.end()
    return Verification(len(document.points), check.repeats, tuple(check.found))


class _Check:
    def __init__(self, document: RunDocument) -> None:
        self.document = document
        self.found: list[Mismatch] = []
        self.repeats = 0
        engine = document.engine
        self._drafts = engine.num_speculative_tokens if engine else 0
        self._devices = len(engine.devices) if engine else 0
        pairs = [(point, detail) for point in document.points for detail in point.repeat_details]
        self._open = dict(zip(repeat_keys(document), pairs, strict=True))
        self._valid: dict[int, list[JudgedRepeat]] = {point.point: [] for point in document.points}

    def add(self, key: RepeatKey, ranks: Sequence[RankSteps]) -> None:
        if key not in self._open:
            # A run that was killed may have kept a cohort's steps without coming to write the document.
            if self.document.status is not RunStatus.RUNNING:
                self.found.append(Mismatch(str(key), "the repeat", "absent", "one"))
            return
        point, detail = self._open.pop(key)
        if point.window is None:
            self.found.append(Mismatch(str(key), "the point's planned window", "absent", "one"))
            return
        self.repeats += 1
        again = _judge_again(point, point.window, key, ranks, self._drafts)
        self.found += [*_repeat_mismatches(key, detail, ranks, again), *_fill_mismatches(key, detail)]
        if detail.status is Status.VALID and again.verdict.valid and not detail.discarded:
            self._valid[key.point].append(again)

    def end(self) -> None:
        """After the last cohort: what has no steps, and the points."""
        for key, (_, detail) in self._open.items():
            if detail.steps:
                self.found.append(Mismatch(str(key), "steps", detail.steps, 0))
        for point in self.document.points:
            self.found += _point_mismatches(point, self._valid[point.point], self._devices, self._drafts)


def _judge_again(
    point: Point, window: PlannedWindow, key: RepeatKey, ranks: Sequence[RankSteps], drafts: int
) -> JudgedRepeat:
    logs = [RankLog(rank.steps, rank.release_step, rank.dp_rank) for rank in ranks]
    plan = WindowPlan(**window.model_dump())
    return JudgedRepeat.of(key.launch, logs, plan, batch=point.batch_size, drafts=drafts)


def _repeat_mismatches(
    key: RepeatKey, detail: RepeatDetail, ranks: Sequence[RankSteps], again: JudgedRepeat
) -> Iterator[Mismatch]:
    outside_the_log = detail.status is not Status.VALID and detail.rule is None
    recomputed = again.detail(key.repeat)
    if not outside_the_log:
        yield from _differing(str(key), detail, recomputed, _VERDICT)
    if not outside_the_log or detail.steps:
        yield from _differing(str(key), detail, recomputed, _FIGURES)
        windows = [(rank.window.start, rank.window.stop) for rank in ranks]
        windows_again = [(rank.window.start, rank.window.stop) for rank in again.rank_steps()]
        if windows != windows_again:
            yield Mismatch(str(key), "the rows of the window", windows, windows_again)


def _fill_mismatches(key: RepeatKey, detail: RepeatDetail) -> Iterator[Mismatch]:
    """A valid repeat's pages were all written, and held what they should if they were read back.

    The steps do not show it; the document must not contradict itself.
    """
    filled = detail.filled or {}
    planned, written = filled.get("pages_planned"), filled.get("pages_written")
    if detail.status is Status.VALID and planned != written:
        yield Mismatch(str(key), "pages_written", written, planned)
    if detail.status is Status.VALID and detail.audit is not None and detail.audit.fault is not None:
        yield Mismatch(str(key), "audit", detail.audit.fault, "no fault in a valid repeat")


def _point_mismatches(
    point: Point, repeats: list[JudgedRepeat], devices: int, drafts: int
) -> Iterator[Mismatch]:
    where = f"point {point.point} (batch {point.batch_size}, context {point.context_len})"
    total = AuditProof.total([detail.audit for detail in point.repeat_details if detail.audit is not None])
    if point.audit != total:
        yield Mismatch(where, "audit", point.audit, total)
    counted = [detail for detail in point.repeat_details if not detail.discarded]
    if (point.status is Status.VALID) != is_trusted(len(repeats), len(counted)):
        found = f"{len(repeats)} valid of {len(counted)} repeats"
        yield Mismatch(where, "status", point.status.value, found)
    elif point.status is Status.VALID:
        yield from _figure_mismatches(where, point, repeats, devices, drafts)


def _figure_mismatches(
    where: str, point: Point, repeats: list[JudgedRepeat], devices: int, drafts: int
) -> Iterator[Mismatch]:
    figures = point_figures(repeats, batch_size_total=point.batch_size_total, devices=devices, drafts=drafts)
    yield from _differing(where, point, point.model_copy(update=figures), tuple(figures))


def _differing(where: str, stored: object, recomputed: object, fields: Iterable[str]) -> Iterator[Mismatch]:
    for field in fields:
        old, new = getattr(stored, field), getattr(recomputed, field)
        if not _equal(old, new):
            yield Mismatch(where, field, old, new)


def _equal(old: object, new: object) -> bool:
    if isinstance(old, float) and isinstance(new, float | int):
        return isclose(old, new, rel_tol=1e-9)
    return old == new
