"""`run --fidelity`: where it is measured, how long it may take, and when a resumed run makes it again."""

from dataclasses import replace

import pytest

from decodebench.bench.budget import Budget
from decodebench.bench.grid import grid
from decodebench.bench.point_state import PointPlan, PointState
from decodebench.bench.run_fidelity import compared_point, is_compared, kept_seconds
from decodebench.bench.settings import Settings
from decodebench.connector.limits import Limits
from decodebench.kv.blocks import GroupShape
from decodebench.results.fidelity import PointFidelity

LIMITS = Limits(
    shapes=(GroupShape("full_attention", 16),),
    num_blocks=1000,
    watermark_blocks=0,
    max_num_seqs=16,
    max_num_batched_tokens=2048,
    max_model_len=8192,
    num_drafts=0,
    lookahead=0,
    batches_in_flight=1,
)


def states(batch_sizes, context_lens, limits=LIMITS):
    points = grid(batch_sizes, context_lens)
    return [PointState(point, PointPlan.of(point, limits, (16,), 64)) for point in points]


def chosen(batch_sizes, context_lens, limits=LIMITS):
    state = compared_point(states(batch_sizes, context_lens, limits), limits)
    return state and (state.point.batch_size, state.point.context_len)


def test_it_is_the_largest_batch_at_its_shortest_context():
    assert chosen((1, 8, 4), (700, 500, 600)) == (8, 500)


def test_a_batch_that_fits_only_at_a_short_context_counts():
    assert chosen((1, 16), (500, 4000)) == (16, 500)


def test_a_point_that_does_not_fit_is_passed_over():
    assert chosen((4, 64), (500,)) == (4, 500)
    assert chosen((64,), (500,)) is None


def test_what_fits_filled_but_not_really_prefilled_is_passed_over():
    slow = replace(
        LIMITS, max_num_batched_tokens=64
    )  # prefills take many steps, in which the first ones decode
    (state,) = states((8,), (1000,), slow)
    tight = replace(slow, num_blocks=state.plan.blocks_needed + 1)
    assert states((8,), (1000,), tight)[0].plan.misfit is None
    assert chosen((8, 1), (1000,), tight) == (1, 1000)


@pytest.mark.parametrize(("max_time", "kept"), [(None, 300), (100, 25), (7200, 300)])
def test_a_quarter_of_the_time_is_kept_for_it_and_at_most_five_minutes(max_time, kept):
    settings = Settings((1,), (500,), max_time_s=max_time, fidelity=True)
    assert kept_seconds(settings) == kept
    assert kept_seconds(replace(settings, fidelity=False)) == 0


def test_the_grid_ends_so_much_earlier():
    whole, less = Budget.of(100), Budget.of(100, kept_s=25)
    assert 24 < whole.deadline - less.deadline <= 25
    assert Budget.of(None, kept_s=25).deadline is None


def test_a_comparison_of_too_few_rounds_is_made_again():
    few = PointFidelity(fill="donor", launch=0, rounds=4, error=0.01)
    enough = few.model_copy(update={"rounds": 5, "low": -0.01, "high": 0.03})
    assert [is_compared(found) for found in (None, few, enough)] == [False, False, True]
