"""The rounds on one server: every arm once a round, no two alike, and none that would end too late."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from decodebench.bench import fidelity_rounds
from decodebench.bench.client import RequestFailed
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
        self.left: list[tuple[float, float]] = []  # when it was told, and what
        self._clock = clock

    def _cohort(self, mode: Mode, point: Compared) -> Figures:
        self.sent.append(mode.name)
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
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8], "precise at the first look, and five may look so by luck"
    assert Counter(rounds.sent) == {REAL: 9, "donor": 9}
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


def test_a_filled_cohort_never_finds_blocks_and_prefilled_ones_find_those_of_their_draw(clock, monkeypatch):
    """A filled cohort with the salt of another would take its blocks from the prefix cache, unfilled."""
    sent = []

    class Client:
        def __init__(self, target, source, salt, check, on_activity):
            self.salt = salt

        def send(self, cohort):
            sent.append((self.salt, cohort))
            raise RequestFailed("not sent")

    monkeypatch.setattr(fidelity_rounds, "Client", Client)
    limits = SimpleNamespace(max_num_batched_tokens=2048, batches_in_flight=1)
    rounds = Rounds(
        Running(SimpleNamespace(), lambda: None),
        SimpleNamespace(ranks=(None, None), limits=limits),
        PromptSource.of(0, 64, []),
        [Mode("donor")],
        Effort(1e-9, 5, 3, clock.now + 600),
        SimpleNamespace(show=lambda moment: None),
        name="n",
        launch=0,
        seed=0,
    )
    points = [Compared(GridPoint(0, 4, 500), PLAN), Compared(GridPoint(1, 8, 500), PLAN)]
    rounds.run(points, lambda point: None)
    assert len({cohort.name for _, cohort in sent}) == len(sent)
    filled = [salt for salt, cohort in sent if not cohort.prefill]
    real = {salt for salt, cohort in sent if cohort.prefill}
    assert len(set(filled)) == len(filled)
    assert len(real) == 1
    assert not real & set(filled)
    for size in (4, 8):
        firsts = {prefill: [] for prefill in (True, False)}
        for _, cohort in sent:
            if cohort.size == size:
                firsts[cohort.prefill].append(cohort.first_prompt)
        assert Counter(firsts[True]) == Counter(firsts[False]), "both sides have the prompts of their draw"
        assert max(Counter(firsts[True]).values()) == 3 + 1, (
            "three passes, and a warm-up before the first draw's"
        )
    spans = {(cohort.first_prompt, 2 * cohort.size) for _, cohort in sent}
    taken = [number for first, size in spans for number in range(first, first + size)]
    assert len(taken) == len(set(taken)), "no prompt is in two draws"


def test_it_is_precise_only_after_whole_draws(clock):
    _, point, _ = run(clock, 0.015, 40, 600, passes=3)
    assert len(point.rounds) == 3 * 8


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
