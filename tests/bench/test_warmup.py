"""MSER-5 finds a start-up, and nothing else moves the start."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.warmup import BATCH, warmup_end

SLACK, STEPS = 20, 84


def noisy(seed: int, sd: float = 0.02) -> np.ndarray:
    return 1e7 * (1 + sd * np.random.default_rng(seed).standard_normal(STEPS))


@given(st.lists(st.integers(1, 10**12), max_size=200), st.integers(0, 60))
def test_the_cut_is_whole_batches_within_the_slack(durations: list[int], slack: int) -> None:
    end = warmup_end(np.array(durations, dtype=np.int64), slack)
    assert end % BATCH == 0
    assert 0 <= end <= slack


@given(st.integers(1, 10**9), st.integers(0, 10**6))
def test_a_series_that_only_grows_with_its_context_is_not_cut(first: int, step: int) -> None:
    assert warmup_end(first + step * np.arange(STEPS, dtype=np.int64), SLACK) == 0


@pytest.mark.parametrize(("decay", "at_least"), [(2, 5), (5, 10), (10, 15)])
@pytest.mark.parametrize("seed", range(5))
def test_a_decaying_start_up_is_cut(seed: int, decay: int, at_least: int) -> None:
    durations = noisy(seed) + 1e7 * np.exp(-np.arange(STEPS) / decay)
    assert warmup_end(durations.astype(np.int64), SLACK) >= at_least


def test_a_start_up_of_under_1_percent_is_left_alone() -> None:
    durations = np.full(STEPS, 1_000_000, dtype=np.int64)
    durations[:10] += 9_000
    assert warmup_end(durations, SLACK) == 0
    durations[:10] += 9_000
    assert warmup_end(durations, SLACK) == 10


@given(st.integers(0, 1000), st.integers(0, STEPS - 1), st.integers(2, 1000))
def test_how_slow_a_single_slow_step_is_makes_no_difference(seed: int, where: int, factor: int) -> None:
    durations = noisy(seed).astype(np.int64)
    durations[where] *= 2
    slow = durations.copy()
    slow[where] *= factor
    assert warmup_end(slow, SLACK) == warmup_end(durations, SLACK)
