"""The start line on vLLM's real scheduler."""

import pytest

from tests.connector.donor_requests import free_blocks
from tests.connector.engine import FULL, SLIDING, Workers, state_spec

IN_FLIGHT = pytest.mark.parametrize("in_flight", [1, 2, 3])
BLOCK = 16


def work(e):
    return [batch for batch in e.batches if batch]


def runs_alone(e, members, steps):
    """Whether the members had `steps` consecutive steps with one token each and nobody else."""
    own = [batch == dict.fromkeys(members, 1) for batch in work(e)]
    return any(all(own[i : i + steps]) for i in range(len(own) - steps + 1))


@IN_FLIGHT
def test_every_step_of_a_cohort_decodes_exactly_its_members(engine, in_flight):
    e = engine(in_flight=in_flight)
    members = e.cohort(size=4, prompt_len=100, max_tokens=10)
    e.run()
    assert all(batch == dict.fromkeys(members, 1) for batch in work(e)[:10])
    log = e.answer(members[0])["steps"]
    first = next(i for i, n in enumerate(log["num_reqs"]) if n)
    assert log["decode_tokens"][first : first + 10] == [4] * 10
    assert sum(log["prefill_tokens"]) == sum(log["foreign_reqs"]) == sum(log["preempted"]) == 0
    assert log["context_tokens"][first : first + 10] == [4 * (100 + k) for k in range(10)]
    assert log["context_min"][first] == log["context_max"][first] == 100


@IN_FLIGHT
@pytest.mark.parametrize("groups", [(FULL, SLIDING), (FULL, state_spec()), (FULL, state_spec("align", 64))])
def test_hybrid_groups_are_held_and_released_the_same_way(engine, groups, in_flight):
    e = engine(groups=groups, in_flight=in_flight)
    members = e.cohort(size=3, prompt_len=200, max_tokens=5)
    e.run()
    assert runs_alone(e, members, 5)
    assert "error" not in e.answer(members[0])


def test_a_partial_cohort_holds_no_blocks_and_blocks_nobody(engine):
    e = engine()
    e.cohort(size=4, count=3)
    free = e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    other = e.add(prompt_len=50, max_tokens=3)
    for _ in range(10):
        e.step()
    assert e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
    assert len(e.outputs[other]) == 3


@IN_FLIGHT
def test_two_interleaved_cohorts_run_one_after_the_other(engine, in_flight):
    """Without the gate each holds half of the blocks and both wait for ever; without its last clause they mix."""
    e = engine(num_blocks=4 * 8 + 1, in_flight=in_flight)
    a, b = [], []
    for _ in range(4):
        a += e.cohort("a", size=4, count=1, prompt_len=100, max_tokens=16)
        b += e.cohort("b", size=4, count=1, prompt_len=100, max_tokens=16)
    e.run()
    assert runs_alone(e, a, 16)
    assert runs_alone(e, b, 16)


def test_a_cohort_waits_until_another_requests_blocks_are_free(engine):
    e = engine(num_blocks=40)
    other = e.add(prompt_len=300, max_tokens=40)  # holds 19 blocks and more while it decodes
    e.run(until=lambda: len(e.outputs.get(other, ())) > 2)
    members = e.cohort(size=4, prompt_len=100, max_tokens=16)
    e.run()
    assert runs_alone(e, members, 16)
    assert len(e.outputs[other]) == 40


@pytest.mark.parametrize("too_few", [0, 1])
def test_a_cohorts_turn_comes_when_the_watermark_stays_free_beside_it(engine, too_few):
    """vLLM keeps it free at every admission but a step's first: with less, a part of the cohort would wait outside."""
    need, watermark = 4 * 8, 4
    e = engine(num_blocks=64, watermark=watermark / 64)
    other = e.add(prompt_len=BLOCK * (63 - need - watermark + too_few) - 15, max_tokens=12)
    e.run(until=lambda: other in e.outputs)  # it stays in the last block it has now
    assert (free := free_blocks(e)) == need + watermark - too_few
    members = e.cohort(size=4, prompt_len=112, max_tokens=16)
    e.step()
    assert (free_blocks(e) == free) == bool(too_few)
    e.run()
    assert "error" not in e.answer(members[0])
    assert runs_alone(e, members, 4)


def test_what_a_request_asks_for_beyond_the_models_length_needs_no_blocks(engine):
    """Ten blocks hold all that a request of at most 160 tokens can ever be, whatever `max_tokens` says."""
    e = engine(num_blocks=2 * 10 + 1, max_model_len=160)
    members = e.cohort(size=2, prompt_len=150, max_tokens=4000)
    e.run()
    assert "error" not in e.answer(members[0])
    assert runs_alone(e, members, 10)


@pytest.mark.parametrize(
    ("limits", "size", "reason"),
    [
        ({"num_blocks": 4 * 8}, 4, "needs 32 of 31 blocks"),
        ({"max_num_seqs": 3}, 4, "4 requests, but --max-num-seqs is 3"),
    ],
)
def test_a_cohort_that_cannot_run_as_one_batch_is_told_to_every_member(engine, limits, size, reason):
    """A pool of exactly the blocks of the members does not fit: the null block is one of them."""
    e = engine(**({"num_blocks": 4000} | limits))
    members = e.cohort(size=size, prompt_len=112, max_tokens=16)  # 128 tokens: 8 blocks
    e.run(2000)
    assert all(reason in e.answer(m)["error"] for m in members)
    assert all(len(e.outputs[m]) == 16 for m in members)


def test_growth_counts_for_the_fit(engine):
    """4 x 640 tokens in exactly 4 x 40 blocks would decode 4, then preempt."""
    e = engine(num_blocks=4 * 40 + 1)
    members = e.cohort(size=4, prompt_len=640, max_tokens=2)
    e.run(2000)
    assert "needs 164 of 160 blocks" in e.answer(members[0])["error"]


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("prompt_len", [193, 200])
@pytest.mark.parametrize(
    ("groups", "each"),
    [
        ((FULL, SLIDING), 15 + 5),
        ((FULL, SLIDING, SLIDING), 15 + 5 + 5),
        ((FULL, state_spec("align", 64)), 15 + 2),
        ((FULL, SLIDING, state_spec()), 15 + 5 + 1),
    ],
)
def test_a_cohort_in_a_pool_of_its_blocks_and_no_more_decodes_to_its_end(
    engine, groups, each, prompt_len, in_flight
):
    """A window of 64 tokens holds five blocks of 16 at most, the step in flight included; 240 tokens are 15 blocks."""
    e = engine(groups=groups, in_flight=in_flight, num_blocks=4 * each + 1)
    members = e.cohort(size=4, prompt_len=prompt_len, max_tokens=240 - prompt_len)
    e.run(2000)
    assert "error" not in e.answer(members[0])
    assert runs_alone(e, members, 240 - prompt_len)
    assert sum(e.answer(members[0])["steps"]["preempted"]) == 0
    short = engine(groups=groups, in_flight=in_flight, num_blocks=4 * each)
    members = short.cohort(size=4, prompt_len=prompt_len, max_tokens=240 - prompt_len)
    short.run(2000)
    assert f"needs {4 * each} of {4 * each - 1} blocks" in short.answer(members[0])["error"]


@pytest.mark.parametrize("prompt", [{"prompt_len": 1}, {"prompt_logprobs": 1}])
def test_a_member_that_cannot_be_held_is_an_error_for_every_member(engine, prompt):
    e = engine()
    members = e.cohort(size=3, count=2) + e.cohort(size=3, count=1, **prompt)
    e.run()
    assert all("cohort" in e.answer(m)["error"] for m in members)
    assert all(len(e.outputs[m]) == 10 for m in members)


def test_a_full_prefix_hit_is_an_error_for_every_member(engine):
    e = engine(prefix_caching=True)
    prompt = list(range(161))
    e.add(prompt=prompt, cache_salt="same", max_tokens=1)
    e.run()
    hit = {"cohort": {"id": "c", "size": 2}}
    members = [e.add(decodebench=hit), e.add(decodebench=hit, prompt=prompt, cache_salt="same")]
    e.run()
    assert all("prefix cache" in e.answer(m)["error"] for m in members)


def test_sizes_that_disagree_break_the_cohort(engine):
    e = engine()
    members = e.cohort("c", size=3, count=2) + e.cohort("c", size=4, count=1)
    e.run()
    assert all("size" in e.answer(m)["error"] for m in members)


def test_a_member_too_many_runs_alone_and_the_cohort_is_exact(engine):
    e = engine()
    members = e.cohort(size=3)
    extra = e.cohort(size=3, count=1, max_tokens=2)[0]
    e.run()
    assert "already complete" in e.answer(extra)["error"]
    assert "error" not in e.answer(members[0])
    log = e.answer(members[0])["steps"]
    assert set(log["decode_tokens"][-5:]) == {3}


def test_an_id_may_be_used_again_once_its_cohort_is_over(engine):
    e = engine()
    for _ in range(3):
        members = e.cohort("again", size=3)
        e.run()
        assert "error" not in e.answer(members[0])


def test_a_cohort_that_expires_runs_and_says_how_many_had_arrived(engine, monkeypatch):
    from decodebench.connector import scheduler

    clock = [0]
    monkeypatch.setattr(scheduler, "monotonic_ns", lambda: clock[0])
    e = engine()
    members = e.cohort(size=4, count=3, timeout_s=5)
    for _ in range(5):
        e.step()
    assert not work(e)
    clock[0] = int(5e9)
    e.run()
    assert all("expired after 5 s: 3 of 4 members had arrived" in e.answer(m)["error"] for m in members)


@IN_FLIGHT
@pytest.mark.parametrize("when", ["gathering", "filling", "filled"])
def test_an_abort_before_the_release_breaks_the_cohort_and_reports_every_started_fill_once(
    engine, when, in_flight
):
    workers = Workers(delay=3 if when == "filling" else 0)
    e = engine(workers=workers, in_flight=in_flight)
    members = e.cohort(size=4, count=3 if when == "gathering" else 4)
    for _ in range({"gathering": 3, "filling": 2, "filled": 1}[when]):
        e.step()
    e.abort(members[1])
    e.run()
    survivors = [m for m in members if m != members[1]]
    assert all("aborted" in e.answer(m)["error"] for m in survivors)
    assert sorted(workers.released) == sorted(set(workers.released))
    # Aborted before it had blocks: never reported. Aborted while its fill ran: reported, or its blocks stay for ever.
    assert (members[1] in workers.released) == (when != "gathering")
    assert not e.scheduler.requests
    assert e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 999


@pytest.mark.parametrize("count", [1, 2, 4])
def test_release_waits_for_every_worker(engine, count):
    workers = Workers(count=1)
    e = engine(workers=workers)
    e.connector._scheduler_half._ledger._num_workers = count
    members = e.cohort(size=2)
    for _ in range(4):
        e.step()
    if count == 1:
        assert work(e)
        return
    assert not workers.released
    workers.count = count
    e.abort(members)  # nothing else frees them: the fills of step 0 are still owed by the other workers
    assert e.scheduler.requests
