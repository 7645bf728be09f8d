"""The judge never raises, and says valid only of a window in which every step decoded the batch and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodebench.bench.drift import drift
from decodebench.bench.validity import Verdict, judge
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.steps import STEP_COLUMNS
from tests.bench.cohort_log import RELEASE_STEP, STEP_NS, cohort_log

PLAN = WindowPlan.of(500, max_model_len=4096, periods=(16,))
LEAD = 3
BATCH = 8
INSIDE = list(range(LEAD + PLAN.warmup_steps, LEAD + PLAN.warmup_steps + PLAN.length))
"""Rows of the window of a log without a start-up."""


def verdict(steps: object, drafts: int = 0) -> Verdict:
    return judge(steps, PLAN, batch=BATCH, release_step=RELEASE_STEP, drafts=drafts).verdict


def test_a_clean_cohort_is_valid() -> None:
    assert verdict(cohort_log(PLAN, BATCH)) == Verdict(None, None)


@pytest.mark.parametrize(
    ("column", "value", "rule", "sentence"),
    [
        ("preempted", 1, "preempted", "preempted 1 request(s)"),
        ("foreign_reqs", 1, "foreign", "also ran 1 request(s) from outside the cohort"),
        ("prefill_tokens", 512, "prefill", "also prefilled 512 token(s)"),
        ("fills_in_flight", 2, "fill", "ran while 2 fill(s) were being written"),
        ("gated", 3, "gated", "ran while 3 request(s) of another cohort were waiting"),
        ("num_reqs", 7, "batch", "ran 7 request(s) instead of 8"),
        ("num_reqs", 0, None, "instead of"),  # a row that schedules nothing also shifts the steps after it
        ("decode_tokens", 9, "tokens", "decoded 9 token(s) instead of 8"),
        ("context_max", 9999, "context", "to 9999 tokens"),
        ("context_min", 1, "context", "read contexts of 1 to"),
        ("context_tokens", 17, "context", "17 in all"),
    ],
)
@pytest.mark.parametrize("row", [INSIDE[0], INSIDE[7], INSIDE[-1]])
def test_one_bad_step_spoils_the_window_and_is_named(
    column: str, value: int, rule: str | None, sentence: str, row: int
) -> None:
    steps = cohort_log(PLAN, BATCH)
    steps[column][row] = value
    found = verdict(steps)
    assert not found.valid
    if rule is not None:
        assert found.rule == rule
        assert found.reason is not None
        assert found.reason.startswith(f"step {RELEASE_STEP + row - LEAD} of the window ")
        assert sentence in found.reason


@pytest.mark.parametrize(
    "column", ["preempted", "foreign_reqs", "prefill_tokens", "fills_in_flight", "gated"]
)
def test_what_happens_before_and_after_the_window_does_not_count(column: str) -> None:
    steps = cohort_log(PLAN, BATCH)
    steps[column][INSIDE[0] - 1] = 1
    steps[column][INSIDE[-1] + 1] = 1
    assert verdict(steps).valid


def test_the_reason_of_a_preemption_is_the_preemption_not_the_smaller_batch() -> None:
    steps = cohort_log(PLAN, BATCH)
    row = INSIDE[3]
    steps["preempted"][row], steps["num_reqs"][row], steps["decode_tokens"][row] = 1, 7, 7
    assert verdict(steps).rule == "preempted"


@pytest.mark.parametrize("row", [INSIDE[0], INSIDE[9]])
def test_a_lost_row_is_a_gap(row: int) -> None:
    steps = cohort_log(PLAN, BATCH)
    for column in steps.values():
        del column[row]
    for column in steps.values():
        column.append(column[-1] + 1)
    steps["done_ns"][-2] = steps["done_ns"][-3] + STEP_NS
    assert verdict(steps).rule == "gap"


def test_an_empty_step_in_the_window_is_named() -> None:
    steps = cohort_log(PLAN, BATCH)
    row = INSIDE[9]
    for name, column in steps.items():
        column.insert(row, column[row] if name in ("step", "scheduled_ns", "done_ns") else 0)
    steps["step"] = list(range(steps["step"][0], steps["step"][0] + len(steps["step"])))
    found = verdict(steps)
    assert (found.rule, found.reason) == (
        "empty",
        f"step {steps['step'][row]} of the window scheduled nothing",
    )


def test_speculative_decoding_counts_requests_and_allows_one_to_one_plus_k_tokens_each() -> None:
    assert verdict(cohort_log(PLAN, BATCH, drafts=3), drafts=3).valid
    assert verdict(cohort_log(PLAN, BATCH), drafts=3).valid
    assert verdict(cohort_log(PLAN, BATCH, drafts=3), drafts=2).rule == "tokens"
    assert verdict(cohort_log(PLAN, BATCH - 1, drafts=3), drafts=3).rule == "batch"


def test_a_window_whose_second_half_is_30_percent_slower_is_drifting() -> None:
    plan = WindowPlan.of(4096, max_model_len=8192)
    middle = plan.warmup_steps + plan.length // 2
    durations = [STEP_NS if k < middle else STEP_NS * 13 // 10 for k in range(plan.max_tokens)]
    steps = cohort_log(plan, BATCH, durations=durations)
    found = judge(steps, plan, batch=BATCH, release_step=RELEASE_STEP).verdict
    assert found.rule == "drifting"
    assert "+30.0%" in str(found.reason)


def test_a_step_time_that_grows_with_the_context_is_not_drifting() -> None:
    plan = WindowPlan.of(64, max_model_len=4096)  # half of the window's time is growth
    durations = [100_000 * (plan.prompt_len + k) for k in range(plan.max_tokens)]
    judged = judge(cohort_log(plan, BATCH, durations=durations), plan, batch=BATCH, release_step=RELEASE_STEP)
    assert judged.verdict.valid
    assert judged.window is not None
    assert drift(judged.window.durations, 1e9).drifting  # the same times without growing contexts


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (None, "NoneType"),
        ("steps", "str"),
        ({}, "no column step"),
        ({name: [] for name in STEP_COLUMNS}, "no step of the cohort"),
        (dict.fromkeys(STEP_COLUMNS, 3), "column step of the step log is int"),
        ({name: [1, 2] if name == "gated" else [1] for name in STEP_COLUMNS}, "gated"),
        ({name: [1, 1] for name in STEP_COLUMNS}, "from step 1 to step 1"),
        ({name: [None] for name in STEP_COLUMNS}, "row 0 of column step"),
        ({name: [-1] for name in STEP_COLUMNS}, "-1"),
        ({name: [True] for name in STEP_COLUMNS}, "True"),
        ({name: [10**400] for name in STEP_COLUMNS}, "over 30 digits"),
        ({name: [float("nan")] for name in STEP_COLUMNS}, "nan"),
    ],
)
def test_a_log_that_is_no_log_is_a_reason(steps: object, words: str) -> None:
    found = verdict(steps)
    assert not found.valid
    assert words in str(found.reason)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(anything | st.dictionaries(st.sampled_from(STEP_COLUMNS), anything))
def test_no_content_makes_the_judge_raise(steps: object) -> None:
    assert not verdict(steps).valid


@settings(max_examples=300)
@given(st.data())
def test_valid_means_that_every_rule_holds(data: st.DataObject) -> None:
    """Some values of a clean log are replaced; an independent reading of the rules must agree with the judge."""
    steps: dict[str, list[Any]] = cohort_log(PLAN, BATCH)
    for _ in range(data.draw(st.integers(0, 3))):
        name = data.draw(st.sampled_from(STEP_COLUMNS))
        row = data.draw(st.integers(0, len(steps["step"]) - 1))
        at = steps[name][row]
        near = st.integers(at - 2, at + 2) if isinstance(at, int) else st.nothing()  # replaced before
        steps[name][row] = data.draw(st.integers(0, 9) | near | st.integers() | anything)
    judged = judge(steps, PLAN, batch=BATCH, release_step=RELEASE_STEP)
    if judged.verdict.valid:
        assert judged.window is not None
        assert_every_rule(steps, judged.window.start)
    else:
        assert judged.verdict.reason


def assert_every_rule(steps: dict[str, list[int]], start: int) -> None:
    row = next(
        row
        for row, step in enumerate(steps["step"])
        if step >= RELEASE_STEP and steps["num_reqs"][row] > steps["foreign_reqs"][row]
    )
    for number in range(start + PLAN.length):
        while number < start and steps["num_reqs"][row] == 0:
            row += 1
        if number >= start:
            assert_clean_row({name: column[row] for name, column in steps.items()}, number)
            assert steps["step"][row] == steps["step"][row - 1] + 1
            assert steps["done_ns"][row] > steps["done_ns"][row - 1] > 0
        row += 1


def assert_clean_row(row: dict[str, int], number: int) -> None:
    assert row["num_reqs"] == row["decode_tokens"] == BATCH
    assert row["context_min"] == row["context_max"] == PLAN.prompt_len + number
    assert row["context_tokens"] == BATCH * row["context_min"]
    for name in ("prefill_tokens", "foreign_reqs", "preempted", "fills_in_flight", "gated"):
        assert row[name] == 0


def test_a_log_that_went_through_json_is_judged_the_same() -> None:
    assert verdict(json.loads(json.dumps(cohort_log(PLAN, BATCH)))).valid
