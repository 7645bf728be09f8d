"""The rounds on one server: every arm once a round, no two alike, and none that would end too late."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from decodebench.bench import fidelity_rounds
from decodebench.bench.fidelity import REAL, Figures, Mode
from decodebench.bench.fidelity_rounds import Compared, Effort, Rounds
from decodebench.bench.grid import GridPoint
from decodebench.bench.prompts import PromptSource
from decodebench.bench.running import Running
from decodebench.bench.window_plan import WindowPlan

PLAN = WindowPlan.of(500, max_model_len=4096, window_steps=8)


class Clock:
    """Seconds that pass only when a cohort runs."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(fidelity_rounds, "time", clock)
    return clock


class Scripted(Rounds):
    """Rounds whose cohorts are not sent: each takes a second and comes to the figure of its arm."""

    def __init__(self, effort: Effort, clock: Clock) -> None:
        facts = SimpleNamespace(ranks=(None,))
        running = Running(SimpleNamespace(), lambda: None)
        prompts, progress = (
            PromptSource.of(0, 64, []),
            SimpleNamespace(show=lambda moment: self.left.append((self._clock.now, moment.left_s))),
        )
        super().__init__(
            running, facts, prompts, [Mode("donor")], effort, progress, name="n", launch=0, seed=0
        )
        self.sent: list[str] = []
        self.asked: list[tuple[str, int, str]] = []  # arm, first prompt, salt
        self.left: list[tuple[float, float]] = []  # when it was told, and what
        self._clock = clock

    def _cohort(self, mode: Mode, point: Compared) -> Figures:
        self.sent.append(mode.name)
        self.asked.append((mode.name, point.first_prompt, self._salt(mode)))
        self._cohorts += 1
        self._clock.now += 1
        step_ns = {REAL: 100_000, "donor": 98_000}[mode.name] * (1 + len(self.sent) % 3 / 1000)
        return Figures((np.array([int(step_ns)]),), 500.0, 4.0)


def run(clock: Clock, precision: float, max_draws: int, seconds: float, *, passes: int = 1):
    rounds = Scripted(Effort(precision, max_draws, passes, clock.now + seconds), clock)
    point, seen = Compared(GridPoint(0, 4, 500), PLAN), []
    rounds.run([point], lambda each: seen.append(len(each.rounds)))
    return rounds, point, seen


def test_the_first_cohort_of_every_arm_is_thrown_away_and_then_each_round_has_all(clock):
    rounds, point, seen = run(clock, 0.015, 40, 600)
    assert seen == [1, 2, 3, 4, 5], "precise at the first look"
    assert Counter(rounds.sent) == {REAL: 6, "donor": 6}
    assert all(set(each.arms) == {REAL, "donor"} for each in point.rounds)
    (found,) = rounds.comparisons(point)
    assert abs(found.error + 0.02) < 0.003


def test_no_more_rounds_than_asked_for(clock):
    _, point, _ = run(clock, 1e-9, 7, 600)
    assert len(point.rounds) == 7


@pytest.mark.parametrize(("seconds", "rounds"), [(10.0, 4), (10.9, 4), (12.0, 5)])
def test_no_round_begins_that_would_end_behind_the_deadline(clock, seconds, rounds):
    """Two seconds warm up, every round takes two."""
    _, point, _ = run(clock, 1e-9, 40, seconds)
    assert len(point.rounds) == rounds


def test_without_time_there_is_no_round(clock):
    rounds, point, seen = run(clock, 0.015, 40, 0)
    assert (seen, len(rounds.sent)) == ([], 2)
    assert rounds.comparisons(point)[0].error is None


def test_a_filled_cohort_never_finds_blocks_and_prefilled_ones_find_those_of_their_draw(clock):
    """A filled cohort with the salt of another would take its blocks from the prefix cache, unfilled."""
    rounds, point, _ = run(clock, 1e-9, 5, 600, passes=3)
    assert len(point.rounds) == 15
    filled = [(first, salt) for name, first, salt in rounds.asked if name == "donor"]
    assert len({salt for _, salt in filled}) == len(filled)
    real = [(first, salt) for name, first, salt in rounds.asked if name == REAL]
    assert len({salt for _, salt in real}) == 1
    assert not {salt for _, salt in real} & {salt for _, salt in filled}
    assert {first for first, _ in real} == {first for first, _ in filled} == {0, 4, 8, 12, 16}


def test_it_is_precise_only_after_whole_draws(clock):
    _, point, _ = run(clock, 0.015, 40, 600, passes=3)
    assert len(point.rounds) == 3 * 5


@pytest.mark.parametrize(
    ("precision", "max_rounds", "seconds"), [(1e-9, 40, 600), (1e-9, 40, 30), (0.015, 40, 600)]
)
def test_the_time_left_is_never_told_too_short(clock, precision, max_rounds, seconds):
    begun = clock.now
    rounds, _, _ = run(clock, precision, max_rounds, seconds)
    for told_at, left_s in rounds.left:
        assert clock.now - told_at <= left_s + 1e-9
        assert told_at + left_s <= begun + seconds
    assert precision > 1e-9 or rounds.left[-1][1] <= 2, "the last round takes two seconds"


def test_the_time_of_servers_to_come_is_left_too(clock):
    rounds = Scripted(Effort(1e-9, 5, 1, clock.now + 20, later_s=600), clock)
    rounds.run([Compared(GridPoint(0, 4, 500), PLAN)], lambda point: None)
    assert all(left_s >= 600 for _, left_s in rounds.left)
