"""A judged cohort as the records that a run keeps of it, and the figures of a point from its judged cohorts.

The runner goes this way once, forwards; `verify.py` goes it again from the stored steps. Because both call
the same functions, a stored figure that cannot be reproduced was changed or damaged after the run.

The cohort of a data-parallel run has one log, one window and one verdict per rank. It is valid if all are;
its figures are over the windows of all ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import JsonValue

from decodebench.bench.ranks import apart
from decodebench.bench.stats import Repeat, StepTime
from decodebench.bench.step_log import StepLog
from decodebench.bench.validity import VALID, Judgement, Verdict, judge
from decodebench.bench.window import Window
from decodebench.bench.window_plan import WindowPlan
from decodebench.results import point as records
from decodebench.results.audit import AuditProof
from decodebench.results.parquet import RankSteps
from decodebench.results.status import Status
from decodebench.results.steps import STEP_COLUMNS


@dataclass(frozen=True, slots=True)
class RankLog:
    """What one data-parallel rank sent back: the step log as it came, and the step of the cohort's release."""

    steps: object
    release_step: int
    dp_rank: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRepeat:
    """The logs of one cohort, each with its verdict."""

    launch: int
    logs: tuple[RankLog, ...]
    judgements: tuple[Judgement, ...]

    @classmethod
    def of(
        cls,
        launch: int,
        logs: Sequence[RankLog],
        plan: WindowPlan,
        *,
        batch: int,
        drafts: int = 0,
        prefilled: bool = False,
    ) -> Self:
        """`batch`: requests per rank. `prefilled`: they were really prefilled."""
        judgements = [
            judge(
                log.steps,
                plan,
                batch=batch,
                release_step=log.release_step,
                drafts=drafts,
                prefilled=prefilled,
            )
            for log in logs
        ]
        return cls(launch, tuple(logs), tuple(judgements))

    @property
    def verdict(self) -> Verdict:
        """That of the first rank that is not valid, or that the ranks did not decode together.

        `drifting` is what it says only where nothing else is wrong.
        """
        if not self.judgements:
            return Verdict("log", "no step log came back")
        bad = [found.verdict for found in self.judgements if not found.verdict.valid]
        wrong = next((verdict for verdict in bad if verdict.rule != "drifting"), None)
        if wrong is None and len(self.logs) > 1:
            reason = apart(self.windows, [StepLog.read(log.steps) for log in self.logs])
            wrong = Verdict("ranks", reason) if reason is not None else None
        return wrong or (bad[0] if bad else VALID)

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(found.window for found in self.judgements if found.window is not None)

    @property
    def durations(self) -> Repeat:
        """The step durations of all ranks, for the statistics."""
        return Repeat(self.launch, np.concatenate([window.durations for window in self.windows]))

    def rank_steps(self) -> list[RankSteps]:
        """What the store keeps; a log that is not well formed cannot be kept."""
        return [
            RankSteps(_columns(log.steps), log.release_step, _rows(log.steps, found.window), log.dp_rank)
            for log, found in zip(self.logs, self.judgements, strict=True)
            if found.verdict.rule != "log"
        ]

    def detail(
        self,
        repeat: int,
        *,
        discarded: bool = False,
        filled: dict[str, JsonValue] | None = None,
        audit: AuditProof | None = None,
    ) -> records.RepeatDetail:
        """The record of this cohort, number `repeat` of its point and launch."""
        windows, verdict = self.windows, self.verdict
        return records.RepeatDetail(
            launch=self.launch,
            repeat=repeat,
            status=Status.VALID if verdict.valid else Status.INVALID,
            reason=verdict.reason,
            rule=verdict.rule,
            discarded=discarded,
            window_start=windows[0].start if windows else None,
            steps=sum(window.num_steps for window in windows),
            duration_ns=sum(window.total_ns for window in windows) if windows else None,
            measured_context=_context(windows),
            prefill_tokens=_total(windows, "prefill_tokens"),
            preemptions=_total(windows, "preempted"),
            filled=filled,
            audit=audit,
        )


def is_trusted(valid: int, counted: int) -> bool:
    """Whether a point has figures: more of its repeats are valid than not, warm-up cohorts not counted."""
    return 2 * valid > counted


def point_figures(
    repeats: Sequence[JudgedRepeat], *, batch_size_total: int, devices: int, drafts: int = 0
) -> dict[str, Any]:
    """The fields of a valid `Point` that come from its repeats: those that are valid and not discarded, at least one.

    `devices`: how many the server runs on, all ranks together; 0 if unknown. With `drafts` a step yields as many tokens
    as were accepted, which the step log does not tell: there are no tokens per second then.
    """
    time = StepTime.of([repeat.durations for repeat in repeats])
    windows = [window for repeat in repeats for window in repeat.windows]
    rate = None if drafts else time.output_tokens_per_s(batch_size_total)
    return {
        "measured_context": _context(windows),
        "repeats": time.repeats,
        "launches": time.launches,
        "steps": time.steps,
        "prefill_tokens": _total(windows, "prefill_tokens"),
        "preemptions": _total(windows, "preempted"),
        "step_time_ns": records.StepTime(
            mean=time.mean,
            low=time.low,
            high=time.high,
            median=time.median,
            p90=time.p90,
            p99=time.p99,
            max=time.max,
        ),
        "precision_reached": time.relative_half_width,
        "interval": None if time.low is None else time.scope,
        "output_tokens_per_s": rate,
        "output_tokens_per_s_per_request": None if drafts else time.output_tokens_per_s(1),
        "output_tokens_per_s_per_device": rate / devices if rate is not None and devices else None,
    }


def _columns(steps: object) -> dict[str, list[int]]:
    assert isinstance(steps, Mapping), "judged as well formed"
    return {name: list(steps[name]) for name in STEP_COLUMNS}


def _rows(steps: object, window: Window | None) -> range:
    """The rows of the log that are the window."""
    if window is None:
        return range(0)
    first = _columns(steps)["step"].index(int(window.rows.step[0]))
    return range(first, first + len(window.rows))


def _context(windows: Sequence[Window]) -> float | None:
    return float(np.mean([window.context for window in windows])) if windows else None


def _total(windows: Sequence[Window], column: str) -> int:
    return sum(int(getattr(window.rows, column).sum()) for window in windows)
