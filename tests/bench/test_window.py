"""The cut takes the planned steps by their times alone, and counts every one of them."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodebench.bench.stats import Repeat, StepTime
from decodebench.bench.step_log import StepLog
from decodebench.bench.validity import judge
from decodebench.bench.window import Window, WindowError
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.steps import Steps
from tests.bench.cohort_log import RELEASE_STEP, STEP_NS, cohort_log

PLAN = WindowPlan.of(1000, max_model_len=4096, periods=(16,))
LEAD = 3


def cut(steps: Steps, plan: WindowPlan = PLAN) -> Window:
    return Window.cut(StepLog.read(steps), plan, RELEASE_STEP)


def test_without_a_start_up_the_window_begins_after_the_warm_up_and_is_centred() -> None:
    window = cut(cohort_log(PLAN, 8))
    assert (window.start, window.num_steps) == (PLAN.warmup_steps, PLAN.length)
    assert window.rows.step[0] == RELEASE_STEP + PLAN.warmup_steps
    assert window.context == pytest.approx(1000, abs=0.5)


@given(st.lists(st.integers(1, 10**9), min_size=PLAN.max_tokens, max_size=PLAN.max_tokens))
def test_step_time_is_the_time_between_two_completions_over_the_steps(durations: list[int]) -> None:
    steps = cohort_log(PLAN, 8, durations=durations)
    window = cut(steps)
    first, last = LEAD + window.start, LEAD + window.start + PLAN.length - 1
    assert window.total_ns == steps["done_ns"][last] - steps["done_ns"][first - 1]
    assert window.durations.tolist() == durations[window.start : window.start + PLAN.length]
    assert window.num_steps == PLAN.length


@settings(max_examples=15)
@given(st.data())
def test_what_the_steps_decoded_does_not_choose_them(data: st.DataObject) -> None:
    steps = cohort_log(PLAN, 8)
    rows = len(steps["step"])
    before = cut(steps)
    for name in (
        "decode_tokens",
        "prefill_tokens",
        "preempted",
        "fills_in_flight",
        "gated",
        "context_tokens",
    ):
        steps[name] = data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows), label=name)
    after = cut(steps)
    assert after.rows.step.tolist() == before.rows.step.tolist()


def test_a_slow_step_inside_the_window_is_counted_wherever_it_is() -> None:
    for slow in range(PLAN.warmup_steps, PLAN.warmup_steps + PLAN.length):
        durations = [STEP_NS + (k * 7919) % 101 * 1000 for k in range(PLAN.max_tokens)]
        plain = cut(cohort_log(PLAN, 8, durations=durations))
        durations[slow] *= 10
        window = cut(cohort_log(PLAN, 8, durations=durations))
        assert window.start == plain.start
        assert window.total_ns == plain.total_ns + durations[slow] * 9 // 10


def test_admission_and_fill_steps_are_never_in_the_window() -> None:
    """Case C6: batch 8, the first step 100 ms slower."""
    durations = [STEP_NS + 100_000_000, *[STEP_NS] * (PLAN.max_tokens - 1)]
    judged = judge(cohort_log(PLAN, 8, durations=durations), PLAN, batch=8, release_step=RELEASE_STEP)
    assert judged.verdict.valid
    assert judged.window is not None
    assert judged.window.total_ns == STEP_NS * judged.window.num_steps


def test_a_steady_batch_of_8_at_10_ms_makes_800_tokens_a_second() -> None:
    """Case C5: 8 slots, 24 requests of 100 tokens; between the cohorts the engine admits and fills."""
    plan = WindowPlan.of(1280, max_model_len=4096)
    assert plan.max_tokens > 100
    waves = [cohort_log(plan, 8) for _ in range(3)]
    repeats = [Repeat(0, cut(wave, plan).durations) for wave in waves]
    assert StepTime.of(repeats).output_tokens_per_s(8) == 800
    whole_run = sum(wave["done_ns"][-2] + 300_000_000 for wave in waves)  # 300 ms to admit and fill each
    assert 3 * 8 * plan.max_tokens * 1e9 / whole_run < 700


def test_steps_before_the_release_are_not_the_cohorts() -> None:
    steps = cohort_log(PLAN, 8)
    for row in range(LEAD):
        steps["num_reqs"][row] = 8
    assert cut(steps).start == PLAN.warmup_steps


def test_the_first_step_is_the_first_that_schedules_a_member() -> None:
    steps = cohort_log(PLAN, 8)
    earlier = cohort_log(PLAN, 8, lead=0)
    for name, column in steps.items():
        column[:LEAD] = earlier[name][:LEAD]
        steps[name] = column
    steps["step"] = list(range(RELEASE_STEP, RELEASE_STEP + len(steps["step"])))
    steps["foreign_reqs"][:LEAD] = [8] * LEAD  # all of the three steps' requests are somebody else's
    steps["done_ns"] = list(accumulate([STEP_NS] * len(steps["step"])))
    assert cut(steps).rows.step[0] == RELEASE_STEP + LEAD + PLAN.warmup_steps


def test_a_completion_that_is_missing_or_out_of_order_is_no_window() -> None:
    row = LEAD + PLAN.warmup_steps + 5
    missing, backwards = cohort_log(PLAN, 8), cohort_log(PLAN, 8)
    missing["done_ns"][row] = 0
    backwards["done_ns"][row] = backwards["done_ns"][row - 1]
    with pytest.raises(WindowError, match=f"step {RELEASE_STEP + row - LEAD} has no completion time"):
        cut(missing)
    with pytest.raises(WindowError, match="completed no later than step"):
        cut(backwards)


def test_too_few_steps_say_how_many_are_there_and_how_many_are_needed() -> None:
    steps = {name: column[:50] for name, column in cohort_log(PLAN, 8).items()}
    with pytest.raises(WindowError, match=f"holds 47 decode steps .* needs {PLAN.last_steps}"):
        cut(steps)
