"""What may not disturb a cohort, and what a cohort may not disturb, on vLLM's real scheduler."""

import pytest

from tests.connector.engine import FULL, SLIDING, Workers

IN_FLIGHT = pytest.mark.parametrize("in_flight", [1, 2, 3])


def tokens_out(e, request):
    return len(e.outputs.get(request, ()))


@IN_FLIGHT
@pytest.mark.parametrize("when", ["gathered", "filling", "decoding"])
@pytest.mark.parametrize("asked", [{"size": 9}, {"size": 3, "prefill": True}, {"size": 3}, {"size": 1}])
def test_a_stranger_that_names_a_complete_cohort_does_not_break_it(engine, when, asked, in_flight):
    workers = Workers(delay=3)
    e = engine(workers=workers, in_flight=in_flight)
    members = e.cohort("c", size=3, max_tokens=12)
    if when == "filling":
        e.step()
    if when == "decoding":
        e.run(until=lambda: tokens_out(e, members[0]) == 3)
    stranger = e.add(decodebench={"cohort": {"id": "c"} | asked}, max_tokens=2)
    e.run()
    assert "already complete" in e.answer(stranger)["error"]
    assert tokens_out(e, stranger) == 2
    assert all("error" not in e.answer(m) for m in members)
    assert 3 in e.answer(members[0])["steps"]["decode_tokens"]


@IN_FLIGHT
def test_a_cohort_waits_for_the_blocks_of_all_its_members_and_holds_none_meanwhile(engine, in_flight):
    e = engine(num_blocks=39, in_flight=in_flight)
    holder = e.add(prompt_len=300, max_tokens=30)  # 19 to 21 of 38 blocks
    e.run(until=lambda: tokens_out(e, holder) == 2)
    members = e.cohort(size=3, prompt_len=100, max_tokens=10)  # 3 x 7: two of them would fit now
    e.run(until=lambda: tokens_out(e, holder) == 25)
    assert not set(members) & e.workers.fills.keys()
    e.run()
    log = e.answer(members[0])["steps"]
    assert "error" not in e.answer(members[0])
    assert {n for n in log["decode_tokens"] if n} == {3}
    assert sum(log["foreign_reqs"]) == 0


@IN_FLIGHT
def test_a_cohort_whose_fill_is_being_written_does_not_expire(engine, in_flight, monkeypatch):
    from decodebench.connector import scheduler

    clock = [0]
    monkeypatch.setattr(scheduler, "monotonic_ns", lambda: clock[0])
    e = engine(workers=Workers(delay=5), in_flight=in_flight)
    members = e.cohort(size=3, timeout_s=5)
    e.step()
    clock[0] = int(9e9)
    e.run()
    assert all("error" not in e.answer(m) for m in members)


@pytest.mark.parametrize("lengths", [(10, 4, 6), (4, 10, 6)])
def test_the_log_comes_with_the_first_member_however_long_the_others_run(engine, lengths):
    e = engine()
    asked = {"cohort": {"id": "c", "size": 3}}
    members = [e.add(decodebench=asked, max_tokens=length) for length in lengths]
    e.run()
    assert ["steps" in e.answer(m) for m in members] == [True, False, False]
    assert len([n for n in e.answer(members[0])["steps"]["num_reqs"] if n]) == lengths[0]


@IN_FLIGHT
def test_a_cohort_that_a_stranger_starves_of_blocks_expires_and_says_so(engine, in_flight, monkeypatch):
    """Room is there when its turn comes; a request between its members in the queue then takes it."""
    from decodebench.connector import scheduler

    clock = [0]
    monkeypatch.setattr(scheduler, "monotonic_ns", lambda: clock[0])
    e = engine(num_blocks=39, in_flight=in_flight)
    members = e.cohort(size=3, count=2, timeout_s=5)
    stranger = e.add(prompt_len=300, max_tokens=30)
    members += e.cohort(size=3, count=1, timeout_s=5)
    e.run(until=lambda: tokens_out(e, stranger) == 3)
    assert e.workers.fills.keys() == {*members[:2], stranger}
    assert not set(members) & e.outputs.keys()
    clock[0] = int(5e9)
    e.run()
    assert all("2 of 3 members had their blocks" in e.answer(m)["error"] for m in members)
    assert not any("steps" in e.answer(m) for m in members)
    assert [tokens_out(e, m) for m in members] == [10] * 3


@IN_FLIGHT
def test_a_server_that_fills_synchronously_holds_cohorts_all_the_same(engine, in_flight):
    e = engine(extra={"async_fill": False}, in_flight=in_flight, max_num_batched_tokens=128)
    members = e.cohort(size=8, count=4, max_tokens=6)
    e.add(decodebench={"fill": False}, prompt_len=400, max_tokens=1)  # takes the whole budget of some steps
    members += e.cohort(size=8, count=4, max_tokens=6)
    e.run()
    assert {len(batch.keys() & set(members)) for batch in e.batches} == {0, 8}
    assert "error" not in e.answer(members[0])


@IN_FLIGHT
def test_tokens_of_members_that_were_found_in_the_prefix_cache_are_told(engine, in_flight):
    e = engine(prefix_caching=True, in_flight=in_flight)
    prompt = [i % 900 for i in range(100)]
    e.add(prompt=prompt, cache_salt="s", max_tokens=1)
    e.run()
    asked = {"cohort": {"id": "c", "size": 2}}
    members = [
        e.add(decodebench=asked, prompt=[*prompt[:64], 900 + i, 7, 7], cache_salt="s") for i in range(2)
    ]
    e.run()
    assert e.answer(members[0])["cohort"]["local_tokens"] == 2 * 64
    assert "error" not in e.answer(members[0])


def test_a_member_that_is_filled_again_after_a_preemption_is_counted_once(engine):
    e = engine()
    members = e.cohort(size=2, prompt_len=100, max_tokens=12)
    e.run(until=lambda: tokens_out(e, members[0]) == 4)
    e.scheduler.reset_prefix_cache(reset_running_requests=True)
    e.run()
    answer = e.answer(members[0])
    assert (answer["cohort"]["filled"], answer["cohort"]["pages"]) == (2, [2 * 7])
    assert sum(answer["steps"]["preempted"]) == 2
    assert sum(answer["steps"]["fills_in_flight"]) > 0
    assert sum(answer["steps"]["prefill_tokens"]) == 0


def test_steps_count_who_was_gated_in_them_and_not_before(engine):
    e = engine()
    members = e.cohort("a", size=2, max_tokens=12)
    e.run(until=lambda: tokens_out(e, members[0]) == 3)
    e.cohort("b", size=3)
    e.run()
    assert set(e.answer(members[0])["steps"]["gated"]) == {0, 3}


def test_the_log_ends_with_its_cohort_whoever_took_it(engine):
    e = engine()
    members = e.cohort(size=2, max_tokens=12)
    e.run(until=lambda: tokens_out(e, members[0]) == 3)
    for member in members:
        e.abort(member)
    e.run()
    assert not e.connector._scheduler_half._log.wanted


def test_an_output_beyond_the_models_length_needs_no_blocks(engine):
    e = engine(max_model_len=256, num_blocks=2 * 16 + 1)
    members = e.cohort(size=2, prompt_len=200, max_tokens=4000)
    e.run()
    assert "error" not in e.answer(members[0])
    assert tokens_out(e, members[0]) == 56


def test_a_request_that_leaves_between_the_answer_and_its_blocks_leaves_nothing(engine):
    e = engine(num_blocks=12)
    e.add(prompt_len=100, max_tokens=60)
    waiting = e.add(prompt_len=100, max_tokens=2)  # is answered each step, and gets no blocks
    for _ in range(5):
        e.step()
    e.abort(waiting)
    assert not e.connector._scheduler_half._offers
    e.run()


@pytest.mark.parametrize("asked", [{}, {"audit": True}])
def test_a_fill_that_fails_after_its_request_was_aborted_leaves_nothing(engine, asked):
    e = engine(workers=Workers(delay=3, error="no memory"))
    request = e.add(decodebench=asked)
    e.step()
    e.abort(request)
    e.run()
    half = e.connector._scheduler_half
    assert (half._errors, half._audits, half._loading, half._filled) == ({}, {}, set(), set())


def test_groups_that_are_not_transferred_are_not_filled(engine):
    e = engine(groups=(FULL, SLIDING))
    e.connector._scheduler_half._transfer_groups = (1,)
    request = e.add(prompt_len=100, max_tokens=1)
    e.run()
    full, sliding = e.workers.fills[request].writes
    assert (full.num_blocks, sliding.num_blocks > 0) == (0, True)
