"""Fills from donors, on vLLM's real scheduler: page by page, later while one is on its way, told when it cannot be."""

import pytest

from tests.connector.donor_requests import GROUPS, IN_FLIGHT, donor
from tests.connector.engine import FULL, SLIDING, Workers, state_spec


@IN_FLIGHT
def test_a_cohort_is_filled_from_donors_page_by_page(engine, in_flight):
    workers = Workers(delay=1)
    e = engine(groups=GROUPS, in_flight=in_flight, workers=workers)
    donor(e, "d0", 200), donor(e, "d1", 200)
    e.run()
    members = [
        e.add(
            decodebench={"cohort": {"id": "c", "size": 3}, "donors": ["d0", "d1"], "seed": seed},
            prompt_len=201,
            max_tokens=4,
        )
        for seed in range(3)
    ]
    e.run()
    assert e.batches[-4:] == [dict.fromkeys(members, 1)] * 4 or dict.fromkeys(members, 1) in e.batches
    for member in members:
        answer = e.answer(member)
        assert "error" not in answer
        assert answer["donor_pages"] == [13, 5, 1]
        full = workers.fills[member].sources[0]
        assert list(full.pages) == list(range(13))  # at the same place, of whichever donor
        assert set(full.donors) == {1, 2}
    seeds = [tuple(workers.fills[member].sources[0].donors) for member in members]
    assert len(set(seeds)) == 3


@IN_FLIGHT
def test_a_fill_waits_for_a_donor_that_is_on_its_way_and_holds_no_blocks_meanwhile(engine, in_flight):
    workers = Workers(delay=3)
    e = engine(in_flight=in_flight, workers=workers)
    first = donor(e)
    alone = e.add(decodebench={"donors": ["d0"]}, prompt_len=201, max_tokens=2)
    cohort = e.cohort(size=2, prompt_len=201, max_tokens=2, asked={"donors": ["d0"]})
    e.run(until=lambda: first in workers.sent)
    assert not {alone, *cohort} & workers.fills.keys()
    e.run()
    for request in (alone, *cohort):
        assert e.answer(request)["donor_pages"] == [13]
        assert "error" not in e.answer(request)


def test_a_donor_that_is_unknown_forgotten_or_refused_is_told_and_the_request_runs(engine):
    e = engine()
    alone = e.add(decodebench={"donors": ["d9"]}, prompt_len=100, max_tokens=2)
    cohort = e.cohort(size=2, prompt_len=100, max_tokens=2, asked={"donors": ["d9"]})
    donor(e, "d0")
    e.run()
    e.add(decodebench={"forget": ["d0"], "fill": False}, prompt_len=2, max_tokens=1)
    late = e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=2)
    e.run()
    for request in (alone, *cohort):
        assert "donor 'd9' is not held here" in e.answer(request)["error"]
        assert len(e.outputs[request]) == 2
    assert "donor 'd0' is not held here" in e.answer(late)["error"]
    assert e.workers.held == {}


@pytest.mark.parametrize(
    ("donors", "asks", "reason"),
    [
        (None, "tuned", "prefilled with the base model, this request runs with the adapter 'tuned'"),
        ("tuned", None, "prefilled with the adapter 'tuned', this request runs with the base model"),
        ("tuned", "other", "prefilled with the adapter 'tuned', this request runs with the adapter 'other'"),
    ],
)
@pytest.mark.parametrize("early", [False, True], ids=["held", "on its way"])
def test_a_donor_of_another_model_is_told_and_the_request_runs(engine, donors, asks, reason, early):
    e = engine()
    donor(e, adapter=donors)
    if not early:
        e.run()
    alone = e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=2, adapter=asks)
    cohort = e.cohort(size=2, prompt_len=100, max_tokens=2, asked={"donors": ["d0"]}, adapter=asks)
    fits = e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=2, adapter=donors)
    e.run()
    for request in (alone, *cohort):
        assert reason in e.answer(request)["error"]
        assert len(e.outputs[request]) == 2
    assert "error" not in e.answer(fits)


def test_a_donor_of_another_server_is_not_held(engine):
    """A bank is one engine's: no bytes of another model can get into a request."""
    first, second = engine(), engine(groups=(SLIDING,))
    donor(first)
    first.run()
    request = second.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=2)
    second.run()
    assert "never prefilled on this server" in second.answer(request)["error"]
    assert len(second.outputs[request]) == 2


@pytest.mark.parametrize(
    ("tokens", "reason"), [(10, "no whole page of 16 tokens"), (40, "a sliding window needs 63")]
)
def test_a_donor_too_short_for_a_block_or_a_window_breaks_the_cohort_with_numbers(engine, tokens, reason):
    e = engine(groups=(FULL, SLIDING))
    donor(e, "d0", tokens)
    e.run()
    members = e.cohort(size=2, prompt_len=300, max_tokens=2, asked={"donors": ["d0"]})
    e.run()
    for member in members:
        assert reason in e.answer(member)["error"]
        assert "at least 63 tokens" in e.answer(member)["error"]
        assert len(e.outputs[member]) == 2


def test_a_preempted_request_is_filled_for_its_prompt_only_and_computes_its_output_again(engine):
    e = engine(num_blocks=2 * 8 + 2)
    donor(e, prompt_len=99)
    e.run()
    requests = [e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=60) for _ in range(2)]
    e.run(2000)
    assert len(e.workers.released) >= 3
    chunks = [tokens for batch in e.batches for tokens in batch.values() if 1 < tokens < 99]
    assert chunks  # outputs, computed again
    assert all(len(e.outputs[request]) == 60 for request in requests)


def test_a_broken_cohort_still_waits_for_its_donor(engine):
    """Its members run on their own then, but from the donor that is on its way."""
    workers = Workers(delay=6)
    e = engine(workers=workers)
    donor(e)
    members = e.cohort(size=3, count=2, prompt_len=201, max_tokens=2, asked={"donors": ["d0"]})
    e.step()
    e.abort(members[0])
    e.run()
    assert "aborted" in e.answer(members[1])["error"]
    assert e.answer(members[1])["donor_pages"] == [13]


def test_a_donor_asked_for_anew_while_a_request_is_preempted_is_waited_for(engine):
    e = engine(num_blocks=2 * 8 + 2)
    donor(e, prompt_len=99)
    e.run()
    requests = [e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=60) for _ in range(2)]
    e.run(until=lambda: any(e.scheduler.requests[request].num_preemptions for request in requests))
    e.add(decodebench={"donor": {"id": "d0"}, "forget": ["d0"]}, prompt_len=99, max_tokens=1)
    e.run(2000)
    assert all(len(e.outputs[request]) == 60 for request in requests)


@pytest.mark.parametrize(
    "groups", [(state_spec(),), (state_spec("align", 64),), (state_spec(), state_spec())]
)
def test_a_model_of_states_only_is_described_and_filled_from_a_donor_of_any_length(engine, groups):
    e = engine(groups=groups)
    donor(e, prompt_len=3)
    e.run()
    request = e.add(decodebench={"info": True, "donors": ["d0"]}, prompt_len=100, max_tokens=1)
    e.run()
    assert e.answer(request)["info"]["donor_bank"]["min_tokens"] == 1
    assert e.answer(request)["donor_pages"] == [1] * len(groups)
