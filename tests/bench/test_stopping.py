"""Looks are few, rare slow steps get the chance to be seen, and the order of points is random yet repeatable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.stats import Repeat
from decodebench.bench.stopping import MIN_STEPS, Stopping, interleave


def repeats(count: int, steps: int = 100, spread: int = 0) -> list[Repeat]:
    return [Repeat(0, np.full(steps, 1000 + spread * (n % 2), dtype=np.int64)) for n in range(count)]


def test_looks_are_each_half_as_many_again() -> None:
    assert list(Stopping(max_repeats=90).looks()) == [5, 8, 12, 18, 27, 40, 60, 90]


@given(st.integers(5, 500))
def test_the_last_look_is_at_max_repeats(max_repeats: int) -> None:
    looks = list(Stopping(max_repeats=max_repeats).looks())
    assert looks == sorted(set(looks))
    assert looks[-1] == max_repeats


def test_it_stops_at_a_look_and_nowhere_else() -> None:
    stops = [n for n in range(1, 41) if Stopping().finished(repeats(n))]
    assert stops == [5, 8, 12, 18, 27, 40]


def test_it_goes_on_while_the_interval_is_too_wide_and_ends_at_max_repeats() -> None:
    stops = [n for n in range(1, 13) if Stopping(max_repeats=12).finished(repeats(n, spread=500))]
    assert stops == [12]


def test_it_does_not_stop_before_a_rare_slow_step_had_its_chance() -> None:
    stops = [n for n in range(1, 40) if Stopping().finished(repeats(n, steps=32))]
    assert stops == [12, 18, 27]
    assert MIN_STEPS <= 12 * 32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"precision": 2.0}, "--precision 2.0"),
        ({"precision": 0.0}, "--precision 0.0"),
        ({"max_repeats": 4}, "--max-repeats 4"),
    ],
)
def test_wrong_settings_name_the_option(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Stopping(**arguments)  # type: ignore[arg-type]


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(), st.integers(0, 100))
def test_every_point_has_one_turn_in_an_order_the_seed_fixes(points: list[int], seed: int, turn: int) -> None:
    order = interleave(points, seed, turn)
    assert sorted(order) == sorted(points)
    assert order == interleave(points, seed, turn)


def test_turns_and_seeds_differ() -> None:
    orders = {tuple(interleave(range(20), seed, turn)) for seed in range(5) for turn in range(5)}
    assert len(orders) == 25
