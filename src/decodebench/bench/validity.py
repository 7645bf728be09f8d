"""May a repeat count? Every step of its window must have decoded the asked batch, and nothing else.

The judge sees the raw log, of any content: it never raises, and it says valid only when every rule holds. The
reason it gives is the first broken rule of the earliest bad step, as one sentence with numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.drift import drift
from decodebench.bench.step_log import IntArray, LogError, StepLog
from decodebench.bench.window import Window, WindowError
from decodebench.bench.window_plan import WindowPlan


@dataclass(frozen=True, slots=True)
class Verdict:
    """Valid, or the rule that was broken and a sentence that says how."""

    rule: str | None = None
    """log, window, gap, preempted, foreign, prefill, fill, gated, empty, batch, tokens, context, drifting or ranks."""
    reason: str | None = None

    @property
    def valid(self) -> bool:
        return self.rule is None


VALID = Verdict()


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The verdict, and the window it is about where one could be cut."""

    verdict: Verdict
    window: Window | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepRule:
    """One thing that no step of a window may do. `say` completes the sentence "step 7 ..." from a row index."""

    name: str
    broken: NDArray[np.bool_]  # per row of the window
    say: Callable[[int], str]


def judge(
    steps: object,
    plan: WindowPlan,
    *,
    batch: int,
    release_step: int,
    drafts: int = 0,
    prefilled: bool = False,
) -> Judgement:
    """Cut the window from a raw step log and check it.

    `drafts`: speculative tokens a request may add to its one token a step. `release_step`: as in
    `Window.cut`. `prefilled`: members were really prefilled, so they decode together only after the last
    step that prefills, their contexts differ by the steps between the first and the last of them, and steps count
    from where they read as much, in the mean, as filled ones do.
    """
    try:
        log = StepLog.read(steps)
        if prefilled:
            release_step = max(release_step, _first_together(log, plan))
        window = Window.cut(log, plan, release_step)
    except LogError as error:
        return Judgement(Verdict("log", str(error)))
    except WindowError as error:
        return Judgement(Verdict("window", str(error)))
    return Judgement(_composition(window, plan, batch, drafts, not prefilled) or _drift(window), window)


def _first_together(log: StepLog, plan: WindowPlan) -> int:
    """Number of the first step behind the last that prefilled anything, in which contexts are as long as planned."""
    prefilling = log.step[log.prefill_tokens > 0]
    after = int(prefilling[-1]) + 1 if len(prefilling) else 0
    long = log.context_tokens >= log.num_reqs * (plan.prompt_len + plan.lead)
    steps = log.step[(log.step >= after) & (log.num_reqs > 0) & long]
    return int(steps[0]) if len(steps) else after


def _composition(window: Window, plan: WindowPlan, batch: int, drafts: int, even: bool) -> Verdict | None:
    """`even`: all requests have the planned context."""
    rules = [*_intruder_rules(window), *_batch_rules(window, plan, batch, drafts, even)]
    broken = np.stack([rule.broken for rule in rules])
    bad_rows = np.flatnonzero(broken.any(axis=0))
    if not len(bad_rows):
        return None
    row = int(bad_rows[0])
    rule = rules[int(np.argmax(broken[:, row]))]
    return Verdict(rule.name, f"step {window.rows.step[row]} of the window {rule.say(row)}")


def _intruder_rules(window: Window) -> list[StepRule]:
    """What else the engine did, cause before effect: a preemption also changes the batch."""
    rows = window.rows
    before = np.concatenate(([window.previous_step], rows.step[:-1]))
    return [
        StepRule(
            "gap",
            rows.step != before + 1,
            lambda row: f"does not follow on step {before[row]}, the one before it",
        ),
        _none_of("preempted", rows.preempted, "preempted {} request(s)"),
        _none_of("foreign", rows.foreign_reqs, "also ran {} request(s) from outside the cohort"),
        _none_of("prefill", rows.prefill_tokens, "also prefilled {} token(s)"),
        _none_of("fill", rows.fills_in_flight, "ran while {} fill(s) were being written"),
        _none_of(
            "gated", rows.gated, "ran while {} request(s) of another cohort were waiting at the start line"
        ),
    ]


def _batch_rules(window: Window, plan: WindowPlan, batch: int, drafts: int, even: bool) -> list[StepRule]:
    """What the cohort itself must have done: B requests, a token each, at the planned context."""
    rows = window.rows
    fewest, most = batch, batch * (1 + drafts)
    rules = [
        StepRule("empty", rows.num_reqs == 0, lambda row: "scheduled nothing"),
        StepRule(
            "batch",
            rows.num_reqs != batch,
            lambda row: f"ran {rows.num_reqs[row]} request(s) instead of {batch}",
        ),
        StepRule(
            "tokens",
            (rows.decode_tokens < fewest) | (rows.decode_tokens > most),
            lambda row: f"decoded {rows.decode_tokens[row]} token(s) instead of {_range(fewest, most)}",
        ),
    ]
    if drafts == 0 and even:
        planned = plan.prompt_len + window.start + np.arange(len(rows))
        rules.append(_context_rule(rows, planned, batch))
    return rules


def _context_rule(rows: StepLog, planned: IntArray, batch: int) -> StepRule:
    """Without drafts every request reads exactly the planned context, in every step."""
    broken = (
        (rows.context_min != planned)
        | (rows.context_max != planned)
        | (rows.context_tokens != planned * batch)
    )

    def say(row: int) -> str:
        return (
            f"read contexts of {rows.context_min[row]} to {rows.context_max[row]} tokens, {rows.context_tokens[row]} in"
            f" all, instead of {planned[row]} for each of {batch}"
        )

    return StepRule("context", broken, say)


def _none_of(name: str, count: IntArray, sentence: str) -> StepRule:
    return StepRule(name, count > 0, lambda row: sentence.format(count[row]))


def _range(fewest: int, most: int) -> str:
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _drift(window: Window) -> Verdict:
    found = drift(window.durations, window.context - (window.num_steps - 1) / 2)
    if not found.drifting:
        return VALID
    return Verdict(
        "drifting",
        f"drifting: the second half of the window took {found.change:+.1%} a step,"
        f" {found.lowest:+.1%} to {found.highest:+.1%} would be noise and growth",
    )
