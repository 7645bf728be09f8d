"""Cohorts whose members are really prefilled, on vLLM's real scheduler: the reference that a fill is held against."""

import pytest

from tests.connector.engine import FULL, SLIDING, state_spec
from tests.connector.test_cohort_on_real_scheduler import work

PREFILL = {"cohort": {"id": "c", "size": 4, "timeout_s": 600, "prefill": True}}


def after_prefill(log) -> int:
    """The first row behind the last that prefilled anything."""
    return max((row for row, tokens in enumerate(log["prefill_tokens"]) if tokens), default=-1) + 1


@pytest.mark.parametrize("in_flight", [1, 2, 3])
@pytest.mark.parametrize(
    "groups", [(FULL,), (FULL, SLIDING), (FULL, state_spec()), (FULL, state_spec("align", 64))]
)
def test_members_start_together_and_decode_together_after_the_last_prefill(engine, groups, in_flight):
    e = engine(groups=groups, in_flight=in_flight, max_num_batched_tokens=128)
    early = e.cohort(size=4, count=3, asked=PREFILL, prompt_len=200, max_tokens=30)
    for _ in range(5):
        e.step()
    assert work(e) == []
    members = early + e.cohort(size=4, count=1, asked=PREFILL, prompt_len=200, max_tokens=30)
    e.run()
    answer = e.answer(members[0])
    assert "error" not in answer, answer
    assert (answer["cohort"]["filled"], answer["cohort"]["local_tokens"]) == (4, 0)
    log = answer["steps"]
    first = after_prefill(log)
    assert log["decode_tokens"][first : first + 15] == [4] * 15
    assert log["num_reqs"][first : first + 15] == [4] * 15
    assert sum(log["foreign_reqs"]) == sum(log["preempted"]) == sum(log["fills_in_flight"]) == 0
    assert log["context_max"][first] - log["context_min"][first] <= 800 // 120 + 1
    assert all(len(e.outputs[member]) == 30 for member in members)
    assert e.workers.fills == {}
    assert e.workers.released == []


def test_every_token_of_every_member_is_really_computed(engine):
    e = engine(max_num_batched_tokens=8192)
    members = e.cohort(size=4, asked=PREFILL, prompt_len=200, max_tokens=10)
    e.run()
    assert {member: sum(batch.get(member, 0) for batch in e.batches) for member in members} == dict.fromkeys(
        members, 200 + 9
    )


def test_a_filled_cohort_waits_for_a_prefilled_one_and_the_other_way_round(engine):
    e = engine()
    real = e.cohort(size=4, asked=PREFILL, prompt_len=200, max_tokens=10)
    filled = e.cohort("f", size=4, prompt_len=200, max_tokens=10)
    again = e.cohort(size=4, asked={"cohort": PREFILL["cohort"] | {"id": "d"}}, prompt_len=200, max_tokens=10)
    e.run()
    for members in (real, filled, again):
        assert "error" not in e.answer(members[0])
        assert sum(e.answer(members[0])["steps"]["foreign_reqs"]) == 0


def test_members_that_disagree_on_prefill_break_the_cohort_and_all_answer(engine):
    e = engine()
    members = e.cohort(size=4, count=2, asked=PREFILL, prompt_len=50, max_tokens=3)
    members += e.cohort(size=4, count=2, prompt_len=50, max_tokens=3)
    e.run()
    assert all("some to be filled" in e.answer(member)["error"] for member in members)
    assert all(len(e.outputs[member]) == 3 for member in members)


def test_a_prefilled_cohort_that_expires_runs_and_says_so(engine):
    e = engine()
    late = {"cohort": PREFILL["cohort"] | {"timeout_s": 1e-6}}
    members = e.cohort(size=4, count=2, asked=late, prompt_len=50, max_tokens=3)
    e.run()
    assert all("expired" in e.answer(member)["error"] for member in members)


@pytest.mark.parametrize("other", [{"donors": ["d"]}, {"fill": True}])
def test_prefill_and_fill_exclude_each_other(engine, other):
    e = engine()
    member = e.add(decodebench=PREFILL | other, max_tokens=2)
    e.run()
    assert "exclude each other" in e.answer(member)["error"]
