"""The arithmetic of paired rounds: what an error is, what its interval holds, and which windows are compared."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.client import Answer
from decodebench.bench.fidelity import (
    REAL,
    Figures,
    Round,
    Spoiled,
    compare,
    distinct_tokens,
    error_interval,
    real_plan,
)
from decodebench.bench.text_prompts import TextPrompts
from decodebench.bench.validity import judge
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.steps import STEP_COLUMNS

PLAN = WindowPlan.of(1000, max_model_len=8192, window_steps=16)
LIMITS = SimpleNamespace(max_num_batched_tokens=2048, batches_in_flight=1)


def figures(step_ns, distinct=4.0, *, drifting=None) -> Figures:
    """Of one rank. `step_ns`: of all its steps, or of each."""
    steps = np.array(step_ns if isinstance(step_ns, list) else [step_ns] * 4)
    return Figures((steps,), 1000.0, distinct, drifting=drifting)


def rounds(real, filled, passes=1) -> list[Round]:
    return [
        Round(number // passes, {REAL: figures(r), "donor": figures(f, 3.0)})
        for number, (r, f) in enumerate(zip(real, filled, strict=True))
    ]


def test_error_is_the_ratio_of_the_means_less_one():
    found = compare("donor", 0, rounds([100, 200], [90, 180]))
    assert found.error == pytest.approx(-0.1)
    assert found.rounds == 2
    assert (found.real.distinct_tokens, found.filled.distinct_tokens) == (4.0, 3.0)


@given(st.lists(st.floats(1e5, 1e9), min_size=5, max_size=12), st.floats(0.5, 2.0))
def test_what_moves_both_sides_of_every_round_alike_leaves_no_doubt(real, ratio):
    low, high = error_interval([ratio * each for each in real], real)
    assert low == pytest.approx(ratio - 1, abs=1e-6)
    assert high == pytest.approx(ratio - 1, abs=1e-6)


def test_the_interval_holds_the_true_error_about_as_often_as_it_says():
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        minute = draw.lognormal(0, 0.3, size=10)  # drift that both sides of a round see
        real = 100 * minute * (1 + draw.normal(0, 0.02, size=10))
        filled = 95 * minute * (1 + draw.normal(0, 0.02, size=10))
        low, high = error_interval(list(filled), list(real))
        held += low <= -0.05 <= high
    assert 0.92 <= held / 400 <= 0.99


def test_a_round_counts_only_if_both_sides_are_valid():
    spoiled = [
        Round(2, {REAL: Spoiled("preempted"), "donor": figures(90)}),
        Round(3, {REAL: figures(100), "donor": Spoiled("refused")}),
    ]
    found = compare("donor", 0, [*rounds([100, 100], [90, 90]), *spoiled])
    assert (found.rounds, found.spoiled, found.reason) == (2, 2, "refused")
    nothing = compare("donor", 0, spoiled)
    assert (nothing.error, nothing.low, nothing.rounds, nothing.at_equal_speed) == (None, None, 0, None)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_too_few_rounds_have_an_error_and_no_interval(count):
    found = compare("donor", 0, rounds([100, 110, 120, 130][:count], [90, 99, 108, 117][:count]))
    assert (found.error, found.low, found.high) == (pytest.approx(-0.1), None, None)


def test_passes_of_a_draw_are_one_figure():
    """Four times the same prompts tell nothing about other prompts."""
    found = compare("donor", 0, rounds([100] * 16, [90] * 16, passes=4))
    assert (found.rounds, found.error) == (16, pytest.approx(-0.1))
    assert (found.low, found.quoted.low) == (None, None)
    assert (found.at_equal_speed.draws, found.at_equal_speed.rounds) == (4, 16)


def test_a_change_of_speed_is_in_the_error_of_the_means_and_not_in_that_at_equal_speed():
    real = [100, 140, 140, 140] * 6
    filled = [126, 90, 126, 126] * 6
    found = compare("donor", 0, rounds(real, filled, passes=4))
    assert found.quoted is found.at_equal_speed
    assert found.quoted.error == pytest.approx(-0.1, abs=0.001)
    unequal = compare("donor", 0, rounds(real, [126] * 24, passes=4))
    assert unequal.error == pytest.approx(126 / 130 - 1)
    assert unequal.quoted.error == pytest.approx(-0.1, abs=0.001)


def test_a_drifting_window_counts_at_equal_speed_only():
    drifting = Round(0, {REAL: figures([100, 150], drifting="drifting"), "donor": figures(90)})
    steady = Round(0, {REAL: figures(100), "donor": figures(90)})
    found = compare("donor", 0, [drifting, steady])
    assert (found.rounds, found.spoiled, found.reason) == (1, 1, "drifting")
    assert found.at_equal_speed.rounds == 2
    alone = compare("donor", 0, [drifting])
    assert (alone.error, alone.real, alone.quoted.error) == (None, None, pytest.approx(90 / 125 - 1))


@given(batch=st.integers(1, 64), context=st.integers(300, 8000))
def test_the_mean_context_of_prefilled_requests_is_that_of_filled_ones(batch, context):
    plan = WindowPlan.of(context, max_model_len=16384, window_steps=16)
    real = real_plan(plan, batch, LIMITS)
    spread = real.tail_steps - plan.tail_steps
    assert spread >= batch * real.prompt_len / 2048
    assert abs(real.prompt_len + spread / 2 - plan.prompt_len) <= 1
    assert (real.length, real.warmup_steps) == (plan.length, plan.warmup_steps)


def test_distinct_tokens_are_counted_at_the_same_place_of_the_output():
    outputs = [[place if member == 0 else 7 for place in range(100)] for member in range(3)]
    answers = [Answer(0, 1, 100, {}, tuple(tokens)) for tokens in outputs]
    assert distinct_tokens(answers, PLAN) == 2.0  # the window begins behind place 7


def log(prefill_steps: int, decode_steps: int, batch: int, spread: int):
    """What two batches of really prefilled members leave: some steps that prefill, then all decode."""
    rows = []
    for step in range(prefill_steps + decode_steps):
        prefilling = step < prefill_steps
        least = PLAN.prompt_len + step - prefill_steps
        rows.append(
            {
                **dict.fromkeys(STEP_COLUMNS, 0),
                "step": step + 10,
                "scheduled_ns": 1000 * step + 1,
                "done_ns": 1000 * (step + 1),
                "num_reqs": batch,
                "decode_tokens": batch - prefilling,
                "prefill_tokens": 100 * prefilling,
                "context_min": least,
                "context_max": least + spread,
                "context_tokens": batch * least + spread,
            }
        )
    return {name: [row[name] for row in rows] for name in STEP_COLUMNS}


def test_the_window_of_prefilled_requests_begins_behind_the_last_prefill():
    steps = log(prefill_steps=7, decode_steps=PLAN.last_steps + 3, batch=4, spread=5)
    found = judge(steps, PLAN, batch=4, release_step=10, prefilled=True)
    assert found.verdict.valid, found.verdict
    assert int(found.window.rows.step[0]) == 17 + PLAN.warmup_steps
    assert judge(steps, PLAN, batch=4, release_step=10).verdict.rule == "context"


def test_prefilled_requests_that_start_together_wait_until_their_contexts_are_those_of_filled_ones():
    """The prefix cache held their prompts, which are shorter for the spread that there is not."""
    plan = replace(PLAN, prompt_len=PLAN.prompt_len - 6, lead=6, tail_steps=PLAN.tail_steps + 12)
    steps = log(prefill_steps=1, decode_steps=PLAN.last_steps + 15, batch=4, spread=0)
    for name in ("context_min", "context_max", "context_tokens"):
        steps[name] = [each - 6 * (4 if name == "context_tokens" else 1) for each in steps[name]]
    found = judge(steps, plan, batch=4, release_step=10, prefilled=True)
    assert found.verdict.valid, found.verdict
    assert found.window.context == PLAN.window_context
    assert int(found.window.rows.step[0]) == 11 + 6 + PLAN.warmup_steps


def test_a_prefill_inside_the_window_leaves_no_window():
    steps = log(prefill_steps=7, decode_steps=PLAN.last_steps + 3, batch=4, spread=5)
    steps["prefill_tokens"][PLAN.last_steps] = 1
    assert judge(steps, PLAN, batch=4, release_step=10, prefilled=True).verdict.rule == "window"


def test_text_prompts_have_the_asked_length_and_differ():
    source = TextPrompts(0, tuple(tuple(range(100 * i, 100 * i + 90)) for i in range(12)))
    prompts = [source.tokens(number, 3000) for number in range(5)]
    assert {len(prompt) for prompt in prompts} == {3000}
    assert len({tuple(prompt) for prompt in prompts}) == 5
    assert replace(source) == source
