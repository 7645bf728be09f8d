"""Requests outside of cohorts on vLLM's real scheduler: fills, refills, refusals, and what responses say."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodebench.connector.layout import GroupLayers
from decodebench.connector.params import RequestParams
from tests.connector.engine import FULL, SLIDING, Workers, state_spec

IN_FLIGHT = pytest.mark.parametrize("in_flight", [1, 2, 3])


def prefills(e):
    """Scheduled chunks of more than one token."""
    return [tokens for batch in e.batches for tokens in batch.values() if tokens > 1]


@IN_FLIGHT
@pytest.mark.parametrize("async_fill", [True, False])
def test_a_plain_request_decodes_without_a_prefill(engine, async_fill, in_flight):
    e = engine(extra={"async_fill": async_fill}, in_flight=in_flight)
    request = e.add(prompt_len=500, max_tokens=5)
    e.run()
    assert prefills(e) == []
    assert len(e.outputs[request]) == 5
    assert e.responses[request] is None  # as with the in-tree connector: nothing asked, nothing said


def test_a_synchronous_fill_costs_no_extra_step(engine):
    e = engine(extra={"async_fill": False})
    e.add(prompt_len=500, max_tokens=1)
    assert e.step() == {"r1": 1}


def test_an_asynchronous_fill_lets_others_run_meanwhile(engine):
    workers = Workers()
    e = engine(workers=workers)
    other = e.add(prompt_len=50, max_tokens=30)
    e.run(until=lambda: len(e.outputs.get(other, ())) == 2)
    workers.delay = 5
    filled = e.add(prompt_len=500, max_tokens=2)
    before = len(e.outputs[other])
    e.run(until=lambda: filled in e.outputs)
    assert len(e.outputs[other]) - before >= 5


def test_fill_false_is_really_prefilled(engine):
    e = engine()
    request = e.add(decodebench={"fill": False}, prompt_len=100, max_tokens=2)
    e.run()
    assert prefills(e) == [100]
    assert e.workers.released == []
    assert len(e.outputs[request]) == 2


def test_info_describes_the_engine_in_the_response(engine):
    e = engine(groups=(FULL, SLIDING, state_spec()), num_blocks=500)
    request = e.add(decodebench={"info": True, "fill": False}, prompt_len=4, max_tokens=1)
    e.run()
    info = e.answer(request)["info"]
    assert info["connector"]["class"] == "decodebench.connector.connector.DecodeBenchConnector"
    assert [group["kind"] for group in info["groups"]] == ["full_attention", "sliding_window", "state"]
    assert (info["num_blocks"], info["usable_blocks"]) == (500, 499)


@IN_FLIGHT
def test_info_of_two_tokens_tells_the_layers_that_workers_know(engine, in_flight):
    """The engine's scheduler is told one layer of a group, and the first step's reports come after its answers."""
    e = engine(workers=Workers(layers=GroupLayers((3,), (("4", "128"),))), in_flight=in_flight)
    request = e.add(decodebench={"info": True, "fill": False}, prompt_len=2, max_tokens=2)
    e.run()
    info = e.answer(request)["info"]
    assert info["groups"][0]["tokens_per_state"] == ["4", "128"]
    assert info["donor_bank"]["page_bytes"] == [3]


@IN_FLIGHT
def test_a_preempted_request_is_filled_again_outputs_included(engine, in_flight):
    """The in-tree connector answers 0 after a preemption, and the engine prefills the whole context."""
    e = engine(num_blocks=2 * 8 + 2, in_flight=in_flight)
    requests = [e.add(prompt_len=100, max_tokens=60) for _ in range(2)]
    e.run(2000)
    assert (
        e.workers.released.count(requests[0]) + e.workers.released.count(requests[1]) >= 3
    )  # at least one refill
    assert prefills(e) == []
    assert all(len(e.outputs[r]) == 60 for r in requests)


def test_a_refill_leaves_alone_what_the_prefix_cache_still_holds(engine):
    """129 tokens when it comes back, of which seven blocks of 16 are found."""
    e = engine(num_blocks=2 * 8 + 2, prefix_caching=True)
    fills = []
    answer = e.workers.answer
    e.workers.answer = lambda meta: fills.extend(meta.reqs_to_fill.items()) or answer(meta)
    requests = [e.add(prompt_len=100, max_tokens=60) for _ in range(2)]
    e.run(2000)
    (again, (blocks, external)) = fills[2]
    assert [name for name, _ in fills] == [*requests, again]
    assert external == 129 - 1 - 7 * 16
    assert len(blocks[0]) == 1
    assert not any(set(blocks[0]) & set(first[0]) for _, (first, _) in fills[:2])
    assert prefills(e) == []
    assert all(len(e.outputs[r]) == 60 for r in requests)


def test_asking_again_has_no_side_effects(engine):
    """A preempted request is asked once a step until blocks are found."""
    e = engine(num_blocks=12)
    holder = e.add(prompt_len=100, max_tokens=60)
    e.run(until=lambda: len(e.outputs.get(holder, ())) > 3)
    waiting = e.add(prompt_len=100, max_tokens=2)
    for _ in range(20):
        e.step()
    assert e.connector._scheduler_half._ledger.in_flight == 0
    e.run()
    assert e.workers.released == [holder, waiting]


def test_only_the_uncached_part_is_filled(engine):
    e = engine(prefix_caching=True)
    prompt = [i % 900 for i in range(200)]
    e.add(prompt=prompt, cache_salt="s", max_tokens=1)
    e.run()
    seen = []
    answer = e.workers.answer
    e.workers.answer = lambda meta: seen.append(meta.reqs_to_fill) or answer(meta)
    second = e.add(prompt=[*prompt[:160], *range(900, 960)], cache_salt="s", max_tokens=1)
    e.run()
    (fill,) = [fills[second] for fills in seen if second in fills]
    assert fill[1] == 220 - 1 - 160
    assert len(fill[0][0]) == 4  # tokens 160..218 in blocks of 16


def test_an_honest_request_with_another_salt_hits_nothing(engine):
    e = engine(prefix_caching=True)
    prompt = [i % 900 for i in range(200)]
    e.add(prompt=prompt, cache_salt="fill", max_tokens=1)
    e.run()
    e.add(decodebench={"fill": False}, prompt=prompt, cache_salt="honest", max_tokens=1)
    e.run()
    assert prefills(e) == [200]


def test_require_salt_refuses_an_unsalted_fill_and_says_so(engine):
    e = engine(prefix_caching=True, extra={"require_salt": True})
    request = e.add(decodebench={}, prompt_len=100, cache_salt=None)
    plain = e.add(prompt_len=64, cache_salt=None)
    salted = e.add(decodebench={}, prompt_len=48)
    e.run()
    assert "require_salt" in e.answer(request)["error"]
    assert sorted(prefills(e)) == [64, 100]
    assert "error" not in e.answer(salted)
    assert len(e.outputs[plain]) == 10


def test_an_unsalted_fill_is_warned_of_once(engine, warnings_of_ours):
    e = engine(prefix_caching=True)
    for _ in range(3):
        e.add(cache_salt=None)
    e.run()
    assert len([text for text in warnings_of_ours if "cache_salt" in text]) == 1


def test_the_start_warns_once_that_the_text_is_meaningless(engine, warnings_of_ours):
    engine()
    assert len([text for text in warnings_of_ours if "meaningless text" in text]) == 1


@pytest.mark.parametrize(
    "config", [{"fill_men": 1}, {"fill_std": -1}, {"fill_mean": "x"}, {"async_fill": 1}, {"seed": 0.5}]
)
def test_a_wrong_key_or_value_stops_the_engine_and_is_named(engine, config):
    with pytest.raises(ValueError, match=next(iter(config))):
        engine(extra=config)


def test_a_producer_role_is_refused(engine):
    with pytest.raises(ValueError, match="kv_role"):
        engine(kv_role="kv_producer")


def test_kv_both_does_not_make_preemption_drop_tokens(engine):
    assert engine().scheduler.requires_kv_delivery is False


# What vLLM's API lets through: an object whose integers fit 64 bits.
integers = st.integers(-(2**63), 2**64 - 1)
anything = st.recursive(
    st.none() | st.booleans() | integers | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["fill", "info", "cohort", "donor", "donors", "seed", "forget", "id", "size", "timeout_s", "x"]
)
ours = st.dictionaries(names, anything | st.dictionaries(names, anything, max_size=4), max_size=4)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    from tests.connector.engine import Engine

    return Engine(tmp_path_factory.mktemp("fuzz") / "model", max_num_seqs=64)


@given(value=anything | ours)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_of_kv_transfer_params_stops_the_scheduler(fuzzed, value):
    parsed = RequestParams.parse({"decodebench": value})
    if parsed.cohort is not None and parsed.cohort.size > 1:
        return  # a legal partial cohort waits for its time-out
    request = fuzzed.add(params={"decodebench": value}, prompt_len=20, max_tokens=2)
    fuzzed.run()
    assert len(fuzzed.outputs[request]) == 2
    if parsed.error is not None:
        assert fuzzed.answer(request)["error"] == parsed.error


@IN_FLIGHT
def test_a_thousand_requests_of_churn_leave_no_state(engine, in_flight):
    """Cohorts, plain requests, aborts at every age, wrong parameters: afterwards nothing is left behind."""
    import random

    draw = random.Random(in_flight)
    workers = Workers(delay=1)
    e = engine(num_blocks=600, in_flight=in_flight, workers=workers, max_num_seqs=16, prefix_caching=True)
    alive: list[str] = []
    for turn in range(250):
        kind = draw.randrange(5)
        if kind == 0:
            alive += e.cohort(
                f"c{turn}", size=4, prompt_len=draw.randrange(2, 90), max_tokens=draw.randrange(1, 6)
            )
        elif kind == 1:
            alive += e.cohort(f"p{turn}", size=4, count=3, prompt_len=40, max_tokens=2)
        elif kind == 2:
            alive.append(e.add(prompt_len=draw.randrange(1, 200), max_tokens=draw.randrange(1, 8)))
        elif kind == 3:
            alive.append(e.add(decodebench={"fill": bool(draw.randrange(2))}, prompt_len=50, max_tokens=2))
        else:
            alive.append(e.add(params={"decodebench": [turn]}, prompt_len=50, max_tokens=2))
        for _ in range(draw.randrange(3)):
            e.step()
        if draw.random() < 0.6:
            e.abort(alive.pop(draw.randrange(len(alive))))
    for request in alive:
        e.abort(request)
    e.run(3000)
    half = e.connector._scheduler_half
    assert not e.scheduler.requests
    assert e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 599
    leftovers = (half._requests, half._errors, half._offers, half._loading, half._filled)
    assert [len(each) for each in leftovers] == [0] * 5
    line = half._line
    assert (line._cohorts, line._of, len(line._waiting), line.active) == ({}, {}, 0, None)
    assert half._ledger.in_flight == 0
    assert not half._composition._prompt_len
    assert not half._composition._decoding
    assert len(workers.released) == len(set(workers.released))
