"""A point of the grid and its repeats, as `run.json` holds them."""

from typing import Any, Self

from pydantic import JsonValue, model_validator

from decodebench.results.audit import AuditProof
from decodebench.results.fidelity import PointFidelity
from decodebench.results.model import Nanoseconds, Record, metric_field
from decodebench.results.provenance import Provenance
from decodebench.results.status import Status


class StepTime(Record):
    """Step times of a point. Without an interval (fewer than five valid repeats) `low` and `high` are absent."""

    mean: Nanoseconds = metric_field("step_time_ns.mean")
    low: Nanoseconds | None = metric_field("step_time_ns.low", None)
    high: Nanoseconds | None = metric_field("step_time_ns.high", None)
    median: Nanoseconds = metric_field("step_time_ns.median")
    p90: Nanoseconds = metric_field("step_time_ns.p90")
    p99: Nanoseconds = metric_field("step_time_ns.p99")
    max: Nanoseconds = metric_field("step_time_ns.max")


class PlannedWindow(Record):
    """Which decode steps of each cohort were to be measured, as settled before any ran (bench/window_plan.py)."""

    context: int
    prompt_len: int
    warmup_steps: int
    slack_steps: int
    length: int
    tail_steps: int
    max_model_len: int
    left_out: tuple[int, ...] = ()


class RepeatDetail(Record):
    """One cohort: its window, its verdict, the proof that its pages were filled.

    Sums and means are over the windows of all data-parallel ranks; step time = `duration_ns / steps`.
    """

    launch: int
    """Which server start of the run, from 0."""
    repeat: int
    """Number of the cohort within its point and launch, from 0, discarded ones included."""
    status: Status
    reason: str | None = None
    rule: str | None = None
    """Rule of the step log that was broken (bench/validity.py); absent: the reason lies outside the log."""
    discarded: bool = False
    """Thrown away whatever its status: the first cohort at a padded batch warms the engine up."""
    window_start: int | None = None
    """Decode steps of the cohort before its window, on the lowest data-parallel rank."""
    steps: int = 0
    """Decode steps in the window."""
    duration_ns: Nanoseconds | None = None
    """From the end of the step before the window to the end of its last step."""
    measured_context: float | None = None
    prefill_tokens: int = 0
    preemptions: int = 0
    filled: dict[str, JsonValue] | None = None
    """What the workers reported to have written, beside what the plan of the blocks says."""
    audit: AuditProof | None = None
    """What reading it back proved; absent: the run did not ask (`--audit`), or the cohort did not come so far."""


class Point(Record):
    """One (batch size, context length) of the grid. Figures are absent unless the status is `valid`."""

    point: int
    """Number of the point in its run, from 0; names it in steps.parquet."""
    batch_size: int
    """Requests decoding together, per data-parallel rank."""
    batch_size_total: int
    """The same, all data-parallel ranks together."""
    context_len: int
    """Context that was asked for, in tokens."""
    measured_context: float | None = metric_field("measured_context", None)
    status: Status
    reason: str | None = None
    """Why the status is not `valid`."""
    repeats: int = 0
    """Valid repeats behind the figures, discarded ones left out."""
    launches: int = 0
    """Server starts that those repeats come from."""
    steps: int = metric_field("steps", 0)
    prefill_tokens: int = metric_field("prefill_tokens", 0)
    preemptions: int = metric_field("preemptions", 0)
    step_time_ns: StepTime | None = None
    precision_asked: float | None = None
    precision_reached: float | None = metric_field("precision_reached", None)
    interval: str | None = None
    """What the interval covers: `within one launch`, `within 2 launches`, or from three on `across N launches`."""
    output_tokens_per_s: float | None = metric_field("output_tokens_per_s", None)
    output_tokens_per_s_per_request: float | None = metric_field("output_tokens_per_s_per_request", None)
    output_tokens_per_s_per_device: float | None = metric_field("output_tokens_per_s_per_device", None)
    content: str = "constant"
    """What the filled pages hold."""
    seed: int = 0
    padded_batch: int | None = None
    """Batch that the engine pads the step to (CUDA graphs); absent: it does not pad."""
    blocks_needed: int | None = None
    """Blocks that the cohort needs on one data-parallel rank, growth included."""
    blocks_available: int | None = None
    window: PlannedWindow | None = None
    window_note: str | None = None
    """What to know about the window, e.g. that it was moved to end within max_model_len."""
    audit: AuditProof | None = None
    """The sum over all audited cohorts of the point, thrown away ones and invalid ones included."""
    fidelity: PointFidelity | None = None
    """How far its fill is from real prefill; absent: not measured here."""
    provenance: Provenance = Provenance()
    repeat_details: tuple[RepeatDetail, ...] = ()

    def figure(self, name: str) -> float | None:
        """The metric of that name in the registry; `None` if this point does not have it."""
        value: Any = self
        for part in name.split("."):
            value = None if value is None else getattr(value, part)
        return None if value is None else float(value)

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if (self.status is Status.VALID) != (self.step_time_ns is not None):
            raise ValueError("a point has step times if and only if it is valid")
        if self.status is not Status.VALID and not self.reason:
            raise ValueError(f"a point that is {self.status.value} needs a reason")
        return self

    @property
    def precision_missed(self) -> bool:
        """Whether a precision was asked for and the interval did not reach it (or there is no interval)."""
        if self.precision_asked is None or self.status is not Status.VALID:
            return False
        return self.precision_reached is None or self.precision_reached > self.precision_asked
