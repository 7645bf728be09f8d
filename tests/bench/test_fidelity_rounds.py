"""The rounds on one server: every arm once a round, no two alike, and none that would end too late."""

import time
from collections import Counter
from types import SimpleNamespace

from decodebench.bench.client import Client
from decodebench.bench.fidelity import REAL, Figures, Mode
from decodebench.bench.fidelity_rounds import Compared, Effort, Rounds
from decodebench.bench.grid import GridPoint
from decodebench.bench.prompts import PromptSource
from decodebench.bench.running import Running
from decodebench.bench.window_plan import WindowPlan
from decodebench.report.progress import Moment

PLAN = WindowPlan.of(500, max_model_len=4096, window_steps=8)


class Scripted(Rounds):
    """Rounds whose cohorts are not sent: each takes a moment and comes to the figure of its arm."""

    def __init__(self, effort: Effort, step_ns: dict[str, float], took_s: float = 0.0) -> None:
        facts = SimpleNamespace(ranks=(None,))
        running = Running(SimpleNamespace(), lambda: None)
        shown: list[Moment] = []
        progress = SimpleNamespace(show=shown.append)
        super().__init__(
            running,
            facts,
            PromptSource.of(0, 64, []),
            [Mode("donor")],
            effort,
            progress,
            name="n",
            launch=0,
            seed=0,
        )
        self.sent: list[str] = []
        self._step_ns, self._took_s = step_ns, took_s

    def _cohort(self, mode: Mode, point: Compared) -> Figures:
        self.sent.append(mode.name)
        time.sleep(self._took_s)
        return Figures(self._step_ns[mode.name] * (1 + len(self.sent) % 3 / 1000), 500.0, 4.0)


def run(effort: Effort, **of_server) -> tuple[Scripted, Compared, list[int]]:
    rounds = Scripted(effort, {REAL: 100.0, "donor": 98.0}, **of_server)
    point, seen = Compared(GridPoint(0, 4, 500), PLAN), []
    rounds.run([point], lambda each: seen.append(len(each.rounds)))
    return rounds, point, seen


def later(seconds: float = 600.0) -> float:
    return time.monotonic() + seconds


def test_the_first_cohort_of_every_arm_is_thrown_away_and_then_each_round_has_all():
    rounds, point, seen = run(Effort(0.015, 40, later()))
    assert seen == [1, 2, 3, 4, 5], "precise at the first look"
    assert Counter(rounds.sent) == {REAL: 6, "donor": 6}
    assert all(set(each.arms) == {REAL, "donor"} for each in point.rounds)
    (found,) = rounds.comparisons(point)
    assert abs(found.error + 0.02) < 0.003


def test_no_more_rounds_than_asked_for():
    _, point, _ = run(Effort(1e-9, 7, later()))
    assert len(point.rounds) == 7


def test_no_round_begins_that_would_end_behind_the_deadline():
    deadline = later(0.5)
    _, point, _ = run(Effort(1e-9, 40, deadline), took_s=0.05)
    assert 1 <= len(point.rounds) < 6
    assert time.monotonic() < deadline + point.longest_s


def test_without_time_there_is_no_round():
    rounds, point, seen = run(Effort(0.015, 40, time.monotonic()))
    assert (seen, len(rounds.sent)) == ([], 2)
    assert rounds.comparisons(point)[0].error is None


def test_both_sides_have_salts_of_their_own():
    rounds = Scripted(Effort(0.015, 40, later()), {})
    salts = {client._salt for client in rounds._clients.values() if isinstance(client, Client)}
    assert salts == {"n-real", "n-filled"}
