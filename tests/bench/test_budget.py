"""The time left that is told is an upper bound: all the repeats that may come, within the time that was given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.budget import Budget
from decodebench.bench.grid import GridPoint
from decodebench.bench.point_state import PointPlan, PointState
from decodebench.bench.settings import Settings
from tests.results.documents import judged

PLAN = PointPlan(None, None, 100, None)


def measured(launches: list[int], seconds: float | None = 1.0) -> PointState:
    """A point with one valid repeat for every launch named."""
    state = PointState(GridPoint(0, 2, 1000), PLAN, seconds=seconds)
    for number, launch in enumerate(launches):
        cohort = judged(2, number, launch=launch)
        state.add(cohort.detail(number), cohort)
    return state


def asked(launches: int = 1) -> Settings:
    return Settings(batch_sizes=(2,), context_lens=(1000,), precision=1e-9, max_repeats=10, launches=launches)


@pytest.mark.parametrize(
    ("repeats", "launch", "later", "settings", "left"),
    [
        ([], 0, 0, asked(), 10),
        ([0] * 3, 0, 0, asked(), 7),
        ([0] * 10, 0, 0, asked(), 0),
        ([0] * 3, 0, 2, asked(3), 7 + 2 * 11),
        ([0] * 10, 0, 2, asked(3), 2 * 11),
        ([0] * 10 + [1] * 4, 1, 1, asked(3), 6 + 11),
        ([0] * 3 + [1] * 4, 1, 0, asked(), 6),  # launch 0 was interrupted
        ([0] * 10, 1, 1, asked(2), 10),  # resumed: one launch is done already
    ],
)
def test_repeats_left_are_what_max_repeats_still_allows_in_all_launches(
    repeats, launch, later, settings, left
):
    assert measured(repeats).repeats_left(launch, later, settings) == left


def test_a_point_that_will_not_be_measured_again_takes_no_time():
    state = measured([0])
    state.stopped = "given up"
    assert state.repeats_left(0, 2, asked(3)) == 0


points = st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 40)), min_size=1, max_size=6)


@given(points, st.floats(0, 100))
def test_without_a_budget_all_repeats_of_all_points_are_left(found, starts_s):
    repeats = [(measured([], seconds), count) for seconds, count in found]
    needed = sum(seconds * count for seconds, count in found)
    left = Budget(None).left(repeats, starts_s)
    assert left == (pytest.approx(needed + starts_s) if any(count for _, count in found) else None)


def test_a_budget_bounds_it_and_what_is_kept_for_later_comes_on_top():
    repeats = [(measured([], 10.0), 40)]
    assert 95 < Budget.of(100).left(repeats) <= 100
    assert 95 < Budget.of(100, kept_s=25).left(repeats) <= 100
    assert Budget.of(1000).left(repeats) == 400
    assert Budget.of(1000, kept_s=25).left(repeats) == 425
    assert Budget.of(None, kept_s=300).left(repeats) == 700


def test_nothing_is_said_while_a_point_was_never_measured():
    repeats = [(measured([], 10.0), 40), (measured([], None), 40)]
    assert Budget(None).left(repeats) is None
    assert 95 < Budget.of(100).left(repeats) <= 100
