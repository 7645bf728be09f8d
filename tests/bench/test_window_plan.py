"""Plans keep the rules of measurement: centred, bounded, whole where that fits, inside max_model_len."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.window_plan import PlanError, WindowPlan

periods = st.lists(st.sampled_from([4, 8, 16, 64, 100, 128, 256, 1616]), max_size=5)


@st.composite
def plans(draw: st.DrawFn) -> WindowPlan:
    max_model_len = draw(st.integers(400, 200_000))
    return WindowPlan.of(
        draw(st.integers(1, max_model_len)),
        max_model_len=max_model_len,
        periods=draw(periods),
        batches_in_flight=draw(st.integers(1, 20)),
        window_steps=draw(st.integers(8, 256)),
    )


@given(plans())
def test_every_request_stays_within_max_model_len_and_has_something_to_fill(plan: WindowPlan) -> None:
    assert plan.prompt_len >= 2
    assert plan.prompt_len + plan.max_tokens <= plan.max_model_len


@given(plans())
def test_no_window_is_longer_than_32_steps_or_5_percent_of_the_context(plan: WindowPlan) -> None:
    assert 1 <= plan.length <= max(32, plan.context // 20)


@given(plans())
def test_a_window_is_centred_unless_it_says_that_it_was_moved(plan: WindowPlan) -> None:
    assert plan.window_context - plan.context == plan.moved - (0.5 if plan.length % 2 == 0 else 0)
    if plan.moved:
        assert "moved" in (plan.note or "")


@given(plans())
def test_a_moved_window_moves_no_further_than_it_must(plan: WindowPlan) -> None:
    if plan.moved < 0:
        assert plan.prompt_len + plan.max_tokens == plan.max_model_len or plan.prompt_len == 2
    if plan.moved > 0:
        assert plan.prompt_len == 2


@given(plans(), periods)
def test_periods_left_out_are_exactly_those_the_length_does_not_hold_whole(
    plan: WindowPlan, asked: list[int]
) -> None:
    again = WindowPlan.of(plan.context, max_model_len=plan.max_model_len, periods=asked)
    assert again.left_out == tuple(period for period in sorted(set(asked)) if again.length % period)


def test_warm_up_is_at_least_16_steps_and_covers_the_batches_in_flight() -> None:
    assert WindowPlan.of(4096, max_model_len=8192).warmup_steps == 16
    assert WindowPlan.of(4096, max_model_len=8192, batches_in_flight=18).warmup_steps == 18


def test_tokens_cover_the_latest_window_and_the_steps_whose_completion_is_never_seen() -> None:
    plan = WindowPlan.of(4096, max_model_len=8192, batches_in_flight=2)
    assert plan.max_tokens >= plan.warmup_steps + plan.slack_steps + plan.length + 2


@pytest.mark.parametrize(
    ("context", "periods", "length", "left_out"),
    [
        (4096, (16,), 64, ()),
        (1000, (16,), 48, ()),  # 5 % is 50 steps
        (100, (16,), 32, ()),
        (4000, (256, 64, 4, 8, 128), 128, (256,)),  # 5 % is 200 steps
        (8192, (256, 64, 4, 8, 128), 256, ()),
        (131_072, (16, 1616), 64, (1616,)),  # never more than four times the asked length
    ],
)
def test_length_is_a_whole_multiple_of_the_periods_that_fit(
    context: int, periods: tuple[int, ...], length: int, left_out: tuple[int, ...]
) -> None:
    plan = WindowPlan.of(context, max_model_len=1 << 18, periods=periods)
    assert (plan.length, plan.left_out) == (length, left_out)


def test_at_max_model_len_the_window_moves_down_and_says_by_how_much() -> None:
    plan = WindowPlan.of(4096, max_model_len=4096)
    assert plan.prompt_len + plan.max_tokens == 4096
    assert plan.note is not None
    assert f"moved down by {-plan.moved} tokens to end within max_model_len 4096" in plan.note


@pytest.mark.parametrize(
    ("context", "max_model_len", "window_steps", "words"),
    [
        (0, 4096, 64, ("context length 0", "4096")),
        (5000, 4096, 64, ("context length 5000", "4096", "--max-model-len")),
        (40, 64, 64, ("max_model_len 64", "--max-model-len", "--window-steps")),
        (1000, 4096, 7, ("--window-steps 7", "8")),
    ],
)
def test_an_impossible_window_names_the_value_and_the_way_out(
    context: int, max_model_len: int, window_steps: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError) as error:
        WindowPlan.of(context, max_model_len=max_model_len, window_steps=window_steps)
    assert all(word in str(error.value) for word in words)
