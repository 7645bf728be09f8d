"""Data-parallel ranks must decode together while they are measured."""

from dataclasses import replace

import numpy as np
import pytest

from decodebench.bench.judged import JudgedRepeat, RankLog
from decodebench.bench.validity import Judgement, Verdict
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.steps import STEP_COLUMNS

PLAN = WindowPlan.of(500, max_model_len=4096, window_steps=8)
MS = 10**6


def log(offset_ms, batch=2):
    """A clean cohort whose steps take 1 ms, begun `offset_ms` after the clock's zero plus one second."""
    count = PLAN.last_steps + PLAN.tail_steps
    steps = np.arange(count)
    begun = 1000 * MS + offset_ms * MS + steps * MS
    context = PLAN.prompt_len + steps
    columns = dict.fromkeys(STEP_COLUMNS, np.zeros(count, dtype=int)) | {
        "step": steps,
        "scheduled_ns": begun,
        "done_ns": begun + MS - 1,
        "num_reqs": np.full(count, batch),
        "decode_tokens": np.full(count, batch),
        "context_tokens": context * batch,
        "context_min": context,
        "context_max": context,
    }
    return {name: [int(value) for value in values] for name, values in columns.items()}


def verdict(*offsets):
    logs = [RankLog(log(offset), 0, rank) for rank, offset in enumerate(offsets)]
    return JudgedRepeat.of(0, logs, PLAN, batch=2).verdict


@pytest.mark.parametrize("offset", [0, 5, -5, 15])
def test_ranks_that_decode_together_are_valid(offset):
    assert verdict(0, offset).valid


def test_a_rank_that_begins_late_or_ends_early_spoils_the_repeat():
    late = verdict(0, 40)
    assert (late.rule, late.valid) == ("ranks", False)
    assert "rank 1 began to decode" in late.reason
    assert "rank 1 ended" in verdict(40, 0).reason


def test_drifting_is_said_only_where_nothing_else_is_wrong():
    """A drifting window still counts where steps are compared run by run; one that is wrong otherwise never does."""

    def rule(*ranks):
        judged = JudgedRepeat.of(0, [RankLog(log(offset), 0) for offset, _ in ranks], PLAN, batch=2)
        said = [
            Judgement(Verdict(rule), each.window)
            for (_, rule), each in zip(ranks, judged.judgements, strict=True)
        ]
        return replace(judged, judgements=tuple(said)).verdict.rule

    assert rule((0, "drifting")) == "drifting"
    assert rule((0, None), (0, "drifting")) == "drifting"
    assert rule((0, "drifting"), (0, "batch")) == "batch"
    assert rule((0, "drifting"), (60, None)) == "ranks"


def test_clocks_of_different_hosts_are_not_compared():
    assert verdict(0, 10 * 3600 * 1000).valid


def test_one_rank_is_never_apart():
    assert verdict(0).valid
