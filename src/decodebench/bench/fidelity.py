"""How far is a filled step from a really prefilled one? The arithmetic of paired rounds.

A round measures every arm once, in random order: one cohort that is really prefilled, one for each fill. A slow minute
of the machine falls on both sides of a pair. With f_i and r_i the mean step times of round i,

    error = mean(f) / mean(r) - 1

and its interval is that of the mean of x_i = R + (f_i - R r_i) / mean(r), R = mean(f) / mean(r): the ratio's
linearisation, whose mean is R. What moves both sides of a round alike drops out of f_i - R r_i.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from decodebench.bench.client import Answer, CohortRequest
from decodebench.bench.donor_set import DonorSet
from decodebench.bench.interval import interval
from decodebench.bench.outcome import Outcome
from decodebench.bench.routed_experts import distinct_experts
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.limits import Limits
from decodebench.kv.arithmetic import ceil_div
from decodebench.results.fidelity import Arm, Comparison
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

REAL = "real prefill"


@dataclass(frozen=True, slots=True)
class Mode:
    """What the KV of an arm's requests is."""

    name: str
    donors: DonorSet | None = None

    @property
    def is_real(self) -> bool:
        return self.name == REAL


@dataclass(frozen=True, slots=True)
class Figures:
    """One valid cohort of an arm."""

    step_ns: float
    context: float
    distinct: float
    experts: float | None = None


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A cohort that does not count, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a point: a cohort of every arm."""

    arms: dict[str, Figures | Spoiled]


def real_plan(plan: WindowPlan, batch: int, limits: Limits) -> WindowPlan:
    """The window of really prefilled requests.

    They finish their prefills over some steps, so the first of them puts out that many tokens more before all decode;
    prompts are shorter by half of it, so that the mean context is that of the filled requests.
    """
    room = max(1, limits.max_num_batched_tokens - batch)
    spread = ceil_div(batch * plan.prompt_len, room) + limits.batches_in_flight
    return replace(
        plan, prompt_len=max(2, plan.prompt_len - spread // 2), tail_steps=plan.tail_steps + spread
    )


def figures_of(cohort: CohortRequest, answers: Sequence[Answer], outcome: Outcome) -> Figures | Spoiled:
    """A cohort's figures, or why it does not count."""
    if outcome.fault is not None or not outcome.judged.verdict.valid:
        return Spoiled(outcome.fault or str(outcome.judged.verdict.reason))
    windows = outcome.judged.windows
    steps = sum(window.num_steps for window in windows)
    return Figures(
        step_ns=sum(window.total_ns for window in windows) / steps,
        context=fmean(window.context for window in windows),
        distinct=distinct_tokens(answers, cohort.plan),
        experts=distinct_experts(answers, cohort.plan),
    )


def distinct_tokens(answers: Sequence[Answer], plan: WindowPlan) -> float:
    """Different tokens that the requests of a rank put out at the same place of their output, mean over the window."""
    places = range(plan.warmup_steps, plan.warmup_steps + plan.length)
    ranks = {answer.rank for answer in answers}
    return fmean(
        len(
            {answer.tokens[place] for answer in answers if answer.rank == rank and place < len(answer.tokens)}
        )
        for rank in ranks
        for place in places
    )


def compare(mode: str, launch: int, rounds: Sequence[Round]) -> Comparison:
    """The fill `mode` against real prefill, over the rounds of one server."""
    pairs = []
    reason = None
    for each in rounds:
        real, filled = each.arms[REAL], each.arms[mode]
        if isinstance(real, Figures) and isinstance(filled, Figures):
            pairs.append((real, filled))
        else:
            reason = real.reason if isinstance(real, Spoiled) else getattr(filled, "reason", None)
    spoiled = len(rounds) - len(pairs)
    if not pairs:
        return Comparison(fill=mode, launch=launch, spoiled=spoiled, reason=reason or "no round was measured")
    bounds = error_interval([filled.step_ns for _, filled in pairs], [real.step_ns for real, _ in pairs])
    error = fmean(filled.step_ns for _, filled in pairs) / fmean(real.step_ns for real, _ in pairs) - 1
    return Comparison(
        fill=mode,
        launch=launch,
        rounds=len(pairs),
        spoiled=spoiled,
        error=error,
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        real=_arm([real for real, _ in pairs]),
        filled=_arm([filled for _, filled in pairs]),
        reason=reason,
    )


def error_interval(filled: Sequence[float], real: Sequence[float]) -> tuple[float, float] | None:
    """Ends of the 95 % interval of mean(filled) / mean(real) - 1, of paired figures; None for too few.

    Not below -1: a step takes some time.
    """
    if len(real) < FEWEST_FOR_INTERVAL:
        return None
    mean_real = fmean(real)
    ratio = fmean(filled) / mean_real
    bounds = interval([ratio + (f - ratio * r) / mean_real for f, r in zip(filled, real, strict=True)])
    return None if bounds is None else (max(bounds[0] - 1, -1.0), bounds[1] - 1)


def _arm(figures: Sequence[Figures]) -> Arm:
    experts = [each.experts for each in figures]
    return Arm.model_validate(
        {
            "step_time_ns": fmean(each.step_ns for each in figures),
            "measured_context": fmean(each.context for each in figures),
            "distinct_tokens": fmean(each.distinct for each in figures),
            "distinct_experts": None if None in experts else fmean(each or 0 for each in experts),
        }
    )
