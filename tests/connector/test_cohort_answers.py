"""What a cohort's answers say of it, on vLLM's real scheduler: the step log, and the proof of its fill."""

from tests.connector.engine import FULL, SLIDING, Workers


def test_the_log_comes_back_once_with_the_first_living_member(engine):
    e = engine()
    members = e.cohort(size=4)
    e.run()
    assert ["steps" in e.answer(m) for m in members] == [True, False, False, False]


def test_completion_times_follow_schedule_times_and_only_the_last_is_open(engine):
    e = engine()
    members = e.cohort(size=2)
    e.run()
    log = e.answer(members[0])["steps"]
    assert log["done_ns"][-1] == 0  # the last step's output arrives after the finish hook
    assert all(done > start for start, done in zip(log["scheduled_ns"], log["done_ns"], strict=True) if done)
    assert 0 not in log["done_ns"][:-1]
    assert log["step"] == list(range(log["step"][0], log["step"][0] + len(log["step"])))


def test_an_abort_after_the_release_is_counted_in_the_answer(engine):
    e = engine()
    members = e.cohort(size=4)
    e.run(until=lambda: len(e.outputs.get(members[0], ())) == 3)
    e.abort(members[0])
    e.run()
    answer = e.answer(members[1])
    assert answer["cohort"]["aborted"] == 1
    assert "steps" in answer  # the log moves on to the first living member
    assert 3 in answer["steps"]["num_reqs"]


def test_a_foreign_request_in_the_window_is_seen_in_the_log(engine):
    e = engine()
    members = e.cohort(size=2, max_tokens=12)
    e.run(until=lambda: len(e.outputs.get(members[0], ())) == 3)
    e.add(decodebench={"fill": False}, prompt_len=40, max_tokens=2)
    e.run()
    log = e.answer(members[0])["steps"]
    assert 40 in log["prefill_tokens"]
    assert 1 in log["foreign_reqs"]


def test_a_gated_cohort_is_seen_in_the_log_of_the_running_one(engine):
    e = engine()
    members = e.cohort("a", size=2, max_tokens=12)
    e.run(until=lambda: len(e.outputs.get(members[0], ())) == 3)
    e.cohort("b", size=2)
    e.run()
    assert 2 in e.answer(members[0])["steps"]["gated"]


def test_a_fill_in_flight_is_seen_in_the_log_of_the_running_cohort(engine):
    workers = Workers()
    e = engine(workers=workers)
    members = e.cohort("a", size=2, max_tokens=12)
    e.run(until=lambda: len(e.outputs.get(members[0], ())) == 3)
    workers.delay = 3
    e.add(prompt_len=50, max_tokens=1)
    e.run()
    assert 1 in e.answer(members[0])["steps"]["fills_in_flight"]


def test_pages_written_are_checked_against_the_plan(engine):
    e = engine(workers=Workers(spoil=(3,)))
    members = e.cohort(size=2, prompt_len=100)
    e.run()
    assert all("wrote [3] pages per group, the plan says [14]" in e.answer(m)["error"] for m in members)


def test_a_failed_fill_is_told_and_the_requests_run(engine):
    e = engine(workers=Workers(error="out of host memory"))
    members = e.cohort(size=2)
    alone = e.add(decodebench={})
    e.run()
    assert all("out of host memory" in e.answer(m)["error"] for m in [*members, alone])
    assert all(len(e.outputs[m]) == 10 for m in [*members, alone])


def test_the_answer_proves_what_was_filled(engine):
    e = engine(groups=(FULL, SLIDING), tensor_parallel_size=1)
    members = e.cohort(size=3, prompt_len=201)
    e.run()
    cohort = e.answer(members[2])["cohort"]
    window_blocks = 5  # tokens 137..199 of a 64-token window, in blocks of 16
    assert cohort["pages"] == [3 * 13, 3 * window_blocks]
    assert cohort | {"filled": 3, "workers": 1, "local_tokens": 0, "aborted": 0} == cohort
