"""The noise figures say what they claim about a series of durations."""

import pytest

from decodebench.engine.noise import describe, measure_noise


def test_equal_durations_are_perfectly_quiet():
    noise = describe([1_000_000] * 1000, seconds=1.0, load=0.0)
    assert (noise.jitter, noise.stolen, noise.max_ns) == (0.0, 0.0, 1_000_000)
    assert noise.is_quiet


def test_rare_long_gaps_count_as_stolen_time_not_as_jitter():
    noise = describe([1_000_000] * 990 + [11_000_000] * 10, seconds=1.1, load=0.0)
    assert noise.jitter == 0.0
    assert noise.stolen == pytest.approx(100 / 1100)
    assert not noise.is_quiet


def test_small_unrest_everywhere_counts_as_jitter_not_as_stolen_time():
    noise = describe([800_000, 1_000_000, 1_200_000] * 300, seconds=0.9, load=0.0)
    assert noise.jitter == pytest.approx(0.2)
    assert noise.stolen == 0.0


def test_a_real_measurement_ends_and_has_samples():
    noise = measure_noise(seconds=0.05)
    assert noise.samples >= 20
    assert 0 <= noise.stolen < 1
