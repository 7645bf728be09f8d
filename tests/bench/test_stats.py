"""The figure is the mean of repeats, the interval is over repeats, and t is Student's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.interval import interval
from decodebench.bench.stats import Repeat, StepTime
from decodebench.bench.student import two_sided_probability, two_sided_quantile


def repeat(*durations: int, launch: int = 0) -> Repeat:
    return Repeat(launch, np.array(durations, dtype=np.int64))


# Two-sided 95 % points as printed in every table of Student's distribution.
@pytest.mark.parametrize(
    ("df", "t"), [(1, 12.706), (2, 4.303), (4, 2.776), (7, 2.365), (11, 2.201), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_those_of_the_tables(df: int, t: float) -> None:
    assert two_sided_quantile(0.95, df) == pytest.approx(t, abs=6e-4)


@given(st.floats(0.01, 0.999), st.integers(1, 300))
def test_probability_undoes_the_quantile(level: float, df: int) -> None:
    assert two_sided_probability(two_sided_quantile(level, df), df) == pytest.approx(level, abs=1e-9)


figures = st.lists(st.floats(1.0, 1e9), min_size=2, max_size=40)


@given(figures, st.floats(0.1, 100))
def test_an_interval_holds_its_mean_and_scales_with_its_unit(values: list[float], unit: float) -> None:
    low, high = interval(values) or (np.nan, np.nan)
    mean, size = float(np.mean(values)), max(values)
    assert low <= mean + 1e-9 * size
    assert high >= mean - 1e-9 * size
    if np.std(values) > 1e-6 * size:
        scaled = interval([unit * value for value in values])
        assert scaled == pytest.approx((unit * low, unit * high), rel=1e-6, abs=1e-6 * unit * size)


@given(figures)
def test_the_order_of_repeats_makes_no_difference(values: list[float]) -> None:
    size = max(values)
    assert interval(values) == pytest.approx(interval(values[::-1]), abs=1e-6 * size)


def test_without_skew_it_is_the_t_interval() -> None:
    low, high = interval([8.0, 9.0, 10.0, 11.0, 12.0]) or (0, 0)
    half = two_sided_quantile(0.965, 4) * np.sqrt(2.5 / 5)
    assert (low, high) == pytest.approx((10 - half, 10 + half))


def test_rare_slow_repeats_stretch_the_interval_upwards() -> None:
    low, high = interval([1.0] * 11 + [2.0]) or (0, 0)
    mean = 13 / 12
    assert high - mean > 1.5 * (mean - low)


@pytest.mark.parametrize("launches", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_too_few_repeats_have_a_mean_and_no_interval(count: int, launches: int) -> None:
    time = StepTime.of([repeat(9 + number, 11 - number, launch=number % launches) for number in range(count)])
    assert (time.mean, time.low, time.high, time.relative_half_width) == (10, None, None, None)


@given(st.lists(st.integers(1, 10**9), min_size=5, max_size=12), st.integers(1, 4))
def test_no_interval_reaches_below_0(means: list[int], launches: int) -> None:
    time = StepTime.of([repeat(mean, launch=number % launches) for number, mean in enumerate(means)])
    assert time.low is not None
    assert time.high is not None
    assert 0 <= time.low <= time.mean <= time.high


def test_a_lower_end_that_would_be_below_0_is_0() -> None:
    assert StepTime.of([repeat(mean) for mean in (1, 1, 1, 1000, 1000)]).low == 0


def test_every_step_counts_in_the_mean_and_percentiles_are_steps_that_happened() -> None:
    slow = [repeat(*[100] * 99, 10_000) for _ in range(5)]
    time = StepTime.of(slow)
    assert time.mean == 199
    assert (time.median, time.p90, time.p99, time.max) == (100, 100, 100, 10_000)
    assert (time.repeats, time.launches, time.steps) == (5, 1, 500)


def test_steps_of_one_repeat_do_not_narrow_the_interval() -> None:
    short = StepTime.of([repeat(*[n] * 4) for n in (80, 90, 100, 110, 120)])
    long = StepTime.of([repeat(*[n] * 400) for n in (80, 90, 100, 110, 120)])
    assert (short.low, short.high) == (long.low, long.high)


def test_with_several_launches_the_interval_is_over_launches() -> None:
    alike = [repeat(100, launch=0)] * 20 + [repeat(120, launch=1)] * 5 + [repeat(110, launch=2)] * 9
    time = StepTime.of(alike)
    assert time.mean == 110  # each launch weighs the same
    assert (time.low, time.high) == tuple(round(end) for end in interval([100, 120, 110]) or ())
    assert time.scope == "across 3 launches"
    assert StepTime.of(alike[:20]).scope == "within one launch"


def test_tokens_per_second_come_from_the_same_duration() -> None:
    assert StepTime.of([repeat(10_000_000, 10_000_000)]).output_tokens_per_s(8) == 800


def test_two_launches_speak_of_their_repeats_only() -> None:
    """Two means have one degree of freedom: a resumed run would get an interval that says nothing."""
    spread = (-2, -1, 0, 1, 2)
    repeats = [
        repeat(*[1000 * base + by] * 100, launch=launch)
        for launch, base in ((0, 10), (1, 12))
        for by in spread
    ]
    time = StepTime.of(repeats)
    assert time.scope == "within 2 launches"
    assert time.mean == 11_000
    assert time.low is not None
    assert time.high is not None
    assert 1 < time.high - time.low < 10  # of the repeats about their own launch, not of the launches
