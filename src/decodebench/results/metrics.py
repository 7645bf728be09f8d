"""Every figure of a point as a declaration: what it is called, its unit, its formula and how it is weighted.

The result schema takes its field descriptions from here, the terminal report its column headings, and
docs/metrics.md has one section per name (a test holds them together). A metric's name is its path inside a
point of `run.json`: `step_time_ns.p99` is `point["step_time_ns"]["p99"]`.
"""

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neither"]

FEWEST_FOR_INTERVAL = 5
"""Valid repeats (rounds of a comparison) below which there is no interval: two or three do not know their spread."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a point. `needs` names the step-log columns (or point fields) that its formula reads."""

    name: str
    title: str  # heading of its column in a report
    unit: str
    formula: str
    weighting: str
    better: Better
    needs: tuple[str, ...]

    @property
    def description(self) -> str:
        """The sentence a JSON schema carries for the field."""
        return f"{self.formula} Unit: {self.unit}. Weighting: {self.weighting}."


_PER_REPEAT = "each valid repeat of a launch counts once, each launch counts once"
_PER_STEP = "each step of each valid repeat's window counts once"
_SUM = "sum over the windows of the valid repeats"

_DECLARED = (
    Metric(
        "step_time_ns.mean",
        "step time",
        "ns",
        "Mean of the repeats' means (window's duration / steps); from three launches on, of the launches' means.",
        _PER_REPEAT,
        "lower",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.low",
        "low",
        "ns",
        "Lower end of the 95 % interval of the mean, over repeats' means (launches' means from three on); not below 0. "
        "Absent for fewer than 5 valid repeats.",
        _PER_REPEAT,
        "neither",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.high",
        "high",
        "ns",
        "Upper end of the 95 % interval of the mean, over repeats' means (launches' means from three on). "
        "Absent for fewer than 5 valid repeats.",
        _PER_REPEAT,
        "neither",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.median",
        "median",
        "ns",
        "Median of the durations of single steps, done_ns[k] - done_ns[k-1].",
        _PER_STEP,
        "lower",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.p90",
        "p90",
        "ns",
        "90th percentile of the durations of single steps: the duration of a step that happened.",
        _PER_STEP,
        "lower",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.p99",
        "p99",
        "ns",
        "99th percentile of the durations of single steps: the duration of a step that happened.",
        _PER_STEP,
        "lower",
        ("done_ns",),
    ),
    Metric(
        "step_time_ns.max",
        "max",
        "ns",
        "Longest single step of any window.",
        _PER_STEP,
        "lower",
        ("done_ns",),
    ),
    Metric(
        "precision_reached",
        "precision",
        "fraction of the mean",
        "Half the width of the interval / step_time_ns.mean; absent without one.",
        _PER_REPEAT,
        "lower",
        ("step_time_ns",),
    ),
    Metric(
        "output_tokens_per_s",
        "tok/s",
        "output tokens/s",
        "batch_size_total * 1e9 / step_time_ns.mean.",
        _PER_REPEAT,
        "higher",
        ("step_time_ns", "batch_size_total"),
    ),
    Metric(
        "output_tokens_per_s_per_request",
        "tok/s per req",
        "output tokens/s",
        "1e9 / step_time_ns.mean.",
        _PER_REPEAT,
        "higher",
        ("step_time_ns",),
    ),
    Metric(
        "output_tokens_per_s_per_device",
        "tok/s per device",
        "output tokens/s",
        "output_tokens_per_s / number of devices of the server.",
        _PER_REPEAT,
        "higher",
        ("step_time_ns", "batch_size_total", "devices"),
    ),
    Metric(
        "measured_context",
        "context measured",
        "KV tokens",
        "Mean over the windows of the mean of (context_tokens / num_reqs): KV tokens a request read in a step.",
        _PER_STEP,
        "neither",
        ("context_tokens", "num_reqs"),
    ),
    Metric(
        "steps",
        "steps",
        "steps",
        "Number of engine steps in the windows of the valid repeats.",
        _SUM,
        "neither",
        ("step",),
    ),
    Metric(
        "prefill_tokens",
        "prefill",
        "tokens",
        "Sum of prefill_tokens; 0 in a valid point.",
        _SUM,
        "lower",
        ("prefill_tokens",),
    ),
    Metric(
        "preemptions",
        "preempted",
        "requests",
        "Sum of preempted; 0 in a valid point.",
        _SUM,
        "lower",
        ("preempted",),
    ),
)

METRICS = {metric.name: metric for metric in _DECLARED}
