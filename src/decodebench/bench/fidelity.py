"""How far is a filled step from a really prefilled one? The arithmetic of paired rounds.

A round measures every arm once, in random order: one cohort that is really prefilled, one for each fill. A slow minute
of the machine falls on both sides of a pair. The same prompts are measured in a few rounds, the passes of their draw;
a draw has one figure for either side, so that passes, which are alike, do not count as many. With f_i and r_i the step
times of draw i,

    error = mean(f) / mean(r) - 1

and its interval is that of the mean of x_i = R + (f_i - R r_i) / mean(r), R = mean(f) / mean(r): the ratio's
linearisation, whose mean is R. What moves both sides of a draw alike drops out of f_i - R r_i.

This is the error of the means, drifting windows left out. Beside it stands that at equal speed of the machine
(equal_speed.py), for which a window may drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import expm1
from statistics import fmean

import numpy as np

from decodebench.bench.client import Answer, CohortRequest
from decodebench.bench.donor_set import DonorSet
from decodebench.bench.equal_speed import Draw, Pass, log_ratio
from decodebench.bench.interval import interval
from decodebench.bench.outcome import Outcome
from decodebench.bench.routed_experts import distinct_experts
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.limits import Limits
from decodebench.kv.arithmetic import ceil_div
from decodebench.results.fidelity import Arm, AtEqualSpeed, Comparison
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
    """One valid cohort of an arm, or one that only drifted."""

    steps: Pass
    context: float
    distinct: float
    experts: float | None = None
    drifting: str | None = None  # how

    @property
    def step_ns(self) -> float:
        """Mean over the window."""
        return float(np.mean(np.concatenate(self.steps)))


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A cohort that does not count, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a point: a cohort of every arm, all with the prompts of draw number `draw`."""

    draw: int
    arms: dict[str, Figures | Spoiled]

    @property
    def spoiled(self) -> bool:
        return any(isinstance(arm, Spoiled) for arm in self.arms.values())


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides of a round."""

    draw: int
    real: Figures
    filled: Figures

    @property
    def drifting(self) -> bool:
        return self.real.drifting is not None or self.filled.drifting is not None


def real_plan(plan: WindowPlan, batch: int, limits: Limits) -> WindowPlan:
    """The window of really prefilled requests.

    They finish their prefills over some steps, so the first of them puts out that many tokens more before all decode.
    Prompts are shorter by half of it, and steps count from where contexts are, in the mean, those of filled requests:
    at once, or half of it later where the prefix cache held the prompts and all of them decode from the first step on.
    """
    room = max(1, limits.max_num_batched_tokens - batch)
    spread = ceil_div(batch * plan.prompt_len, room) + limits.batches_in_flight
    prompt_len = max(2, plan.prompt_len - spread // 2)
    return replace(
        plan, prompt_len=prompt_len, lead=plan.prompt_len - prompt_len, tail_steps=plan.tail_steps + spread
    )


def figures_of(cohort: CohortRequest, answers: Sequence[Answer], outcome: Outcome) -> Figures | Spoiled:
    """A cohort's figures, or why it does not count."""
    verdict = outcome.judged.verdict
    if outcome.fault is not None or verdict.rule not in (None, "drifting"):
        return Spoiled(outcome.fault or str(verdict.reason))
    windows = outcome.judged.windows
    return Figures(
        steps=tuple(window.durations for window in windows),
        context=fmean(window.context for window in windows),
        distinct=distinct_tokens(answers, cohort.plan),
        experts=distinct_experts(answers, cohort.plan),
        drifting=verdict.reason,
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
        reason = _fault(real) or _fault(filled) or reason
        if isinstance(real, Figures) and isinstance(filled, Figures):
            pairs.append(Pair(each.draw, real, filled))
    steady = [pair for pair in pairs if not pair.drifting]
    whole = Comparison(
        fill=mode,
        launch=launch,
        rounds=len(steady),
        spoiled=len(rounds) - len(steady),
        at_equal_speed=_at_equal_speed(pairs) if pairs else None,
        reason=reason if rounds else "no round was measured",
    )
    if not steady:
        return whole
    draws = _by_draw(steady)
    filled_ns = [fmean(pair.filled.step_ns for pair in draw) for draw in draws]
    real_ns = [fmean(pair.real.step_ns for pair in draw) for draw in draws]
    low, high = error_interval(filled_ns, real_ns) or (None, None)
    return whole.model_copy(
        update={
            "error": fmean(filled_ns) / fmean(real_ns) - 1,
            "low": low,
            "high": high,
            "real": _arm([pair.real for pair in steady]),
            "filled": _arm([pair.filled for pair in steady]),
        }
    )


def _at_equal_speed(pairs: Sequence[Pair]) -> AtEqualSpeed:
    draws = [
        Draw([pair.real.steps for pair in draw], [pair.filled.steps for pair in draw])
        for draw in _by_draw(pairs)
    ]
    error, bounds = log_ratio(draws)
    low, high = bounds or (None, None)
    return AtEqualSpeed(
        error=expm1(error),
        low=None if low is None else expm1(low),
        high=None if high is None else expm1(high),
        draws=len(draws),
        rounds=len(pairs),
    )


def _by_draw(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """In the order of rounds, which ends a draw before the next begins."""
    return [list(draw) for _, draw in groupby(pairs, key=lambda pair: pair.draw)]


def _fault(arm: Figures | Spoiled) -> str | None:
    return arm.reason if isinstance(arm, Spoiled) else arm.drifting


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
