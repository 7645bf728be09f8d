"""The error at equal speed: found through changes of speed that ruin the means, its interval as wide as its doubt."""

from itertools import product

import numpy as np
import pytest

from decodebench.bench.equal_speed import RUN_STEPS, Draw, log_ratio

TRUTH = -0.03


def passes(rng, level, slow, count=3, steps=4 * RUN_STEPS):
    """`slow`: chance that a pass, whole, takes 1.4 times as long."""
    speeds = np.where(rng.random(count) < slow, 1.4, 1.0)
    return [(1e8 * level * speed * (1 + 0.02 * rng.standard_normal(steps)),) for speed in speeds]


def draws(rng, slow, count=20, content=0.02):
    return [
        Draw(
            passes(rng, np.exp(content * rng.standard_normal()), slow),
            passes(rng, np.exp(TRUTH + content * rng.standard_normal()), slow),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("slow", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_it_does_not_matter_how_often_the_machine_is_slow(slow):
    found = [log_ratio(draws(np.random.default_rng(seed), slow)) for seed in range(30)]
    errors = [estimate - TRUTH for estimate, _ in found]
    assert np.abs(errors).max() < 0.03, "a speed is 0.34 away"
    held = [low <= TRUTH <= high for _, (low, high) in found]
    assert np.mean(held) >= 0.85
    assert np.mean([high - low for _, (low, high) in found]) / 2 < 0.02


def test_what_requests_differ_by_widens_the_interval():
    widths = []
    for content in (0.01, 0.03):
        _, (low, high) = log_ratio(draws(np.random.default_rng(0), 0.5, content=content))
        widths.append(high - low)
    assert 2 < widths[1] / widths[0] < 4


def test_more_passes_of_the_same_draws_do_not_narrow_it():
    """They agree about what their requests say, whatever it is."""
    rng = np.random.default_rng(0)
    few = draws(rng, 0.0, count=6)
    again = [Draw([*each.real, *each.real], [*each.filled, *each.filled]) for each in few]
    (low, high), (low_again, high_again) = log_ratio(few)[1], log_ratio(again)[1]
    assert high_again - low_again == pytest.approx(high - low, rel=0.02)


def test_every_pass_is_held_against_every_one_of_the_other_side_run_by_run():
    real = [
        (np.array([100] * RUN_STEPS + [200] * RUN_STEPS),),
        (np.array([110] * RUN_STEPS + [220] * RUN_STEPS),),
    ]
    filled = [(np.array([90] * RUN_STEPS + [160] * RUN_STEPS),)]
    assert sorted(np.exp(Draw(real, filled).log_ratios)) == pytest.approx([160 / 220, 0.8, 90 / 110, 0.9])


def test_ranks_are_not_mixed():
    ranks = {rank: np.array([time] * RUN_STEPS) for rank, time in ((0, 100), (1, 300))}
    real, filled = [(ranks[0], ranks[1])], [(0.9 * ranks[0], 0.8 * ranks[1])]
    assert sorted(np.exp(Draw(real, filled).log_ratios)) == pytest.approx([0.8, 0.9])


def test_few_draws_have_an_estimate_and_no_interval():
    estimate, bounds = log_ratio(draws(np.random.default_rng(0), 0.0, count=4))
    assert abs(estimate - TRUTH) < 0.05
    assert bounds is None


def test_passes_that_agree_do_not_hide_that_draws_differ():
    """A quiet machine: hardly any noise within a draw, so that two draws may agree by chance."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(100):
        errors = TRUTH + 0.02 * rng.standard_normal(8)
        same = [Draw([(np.full(48, 1e8),)] * 3, [(np.full(48, 1e8 * np.exp(each)),)] * 3) for each in errors]
        _, (low, high) = log_ratio(same)
        held.append(low <= TRUTH <= high)
    assert np.mean(held) >= 0.88


def test_two_heaps_have_no_interval():
    apart = [Draw([(np.full(48, 1e8),)], [(np.full(48, 1e8 * (1 + number % 2)),)]) for number in range(6)]
    estimate, bounds = log_ratio(apart)
    assert -0.01 < estimate < np.log(2) + 0.01
    assert bounds is None or bounds[1] - bounds[0] > 0.1


def test_equal_ratios_leave_no_doubt():
    same = [Draw([(np.full(30, 100.0),)], [(np.full(30, 90.0),)])] * 5
    estimate, (low, high) = log_ratio(same)
    assert (estimate, low, high) == pytest.approx([np.log(0.9)] * 3)


@pytest.mark.parametrize(("steps", "count"), list(product((1, 5, RUN_STEPS + 1), (1, 2))))
def test_short_windows_and_single_passes_have_an_estimate(steps, count):
    rng = np.random.default_rng(0)
    short = [Draw(passes(rng, 1.0, 0.0, count, steps), passes(rng, 0.9, 0.0, count, steps)) for _ in range(5)]
    estimate, _ = log_ratio(short)
    assert abs(estimate - np.log(0.9)) < 0.06
