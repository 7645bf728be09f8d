"""Requests of every kind: whatever is asked, the server lives on and the answer says what was wrong."""

import json

import pytest

from decodebench.engine.command import CONNECTOR_CLASS
from tests.e2e.client import talk
from tests.e2e.servers import GEMMA3, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, on(GEMMA3)]


def nested(depth: int) -> list:
    inner: list = []
    for _ in range(depth):
        inner = [inner]
    return inner


COHORT = {"id": "x", "size": 2}
WRONG = {
    "a list": [],
    "a text": "yes",
    "a number": 1,
    "null": None,
    "unknown key": {"fil": True},
    "fill as text": {"fill": "true"},
    "fill as null": {"fill": None},
    "info as number": {"info": 1},
    "cohort as list": {"cohort": [1]},
    "cohort as text": {"cohort": "a"},
    "cohort without fill": {"fill": False, "cohort": COHORT},
    "empty cohort": {"cohort": {}},
    "id as number": {"cohort": COHORT | {"id": 7}},
    "empty id": {"cohort": COHORT | {"id": ""}},
    "endless id": {"cohort": COHORT | {"id": "x" * 100_000}},
    "size 0": {"cohort": COHORT | {"size": 0}},
    "size -1": {"cohort": COHORT | {"size": -1}},
    "size true": {"cohort": COHORT | {"size": True}},
    "size 1.5": {"cohort": COHORT | {"size": 1.5}},
    "size 10**18": {"cohort": COHORT | {"size": 10**18}},
    "time-out as text": {"cohort": COHORT | {"timeout_s": "1"}},
    "time-out 0": {"cohort": COHORT | {"timeout_s": 0}},
    "time-out 1e300": {"cohort": COHORT | {"timeout_s": 1e300}},
    "unknown key in cohort": {"cohort": COHORT | {"sise": 2}},
    "nested 50 deep": nested(50),
}
TOO_MUCH = {
    "lone surrogate": {"cohort": COHORT | {"id": "\ud800"}},
    "lone surrogate as key": {"\udfff": 1},
    "size beyond 64 bits": {"cohort": COHORT | {"size": 2**64}},
    "size of 4,000 digits": {"cohort": COHORT | {"size": 10**4000}},
    "time-out of 400 digits": {"cohort": COHORT | {"timeout_s": 10**400}},
    "time-out infinite": {"cohort": COHORT | {"timeout_s": float("inf")}},
    "time-out NaN": {"cohort": COHORT | {"timeout_s": float("nan")}},
    "nested 900 deep": nested(900),
    "nested 100,000 deep": None,
}


def body_of(server, asked) -> bytes:
    fields = {"model": server.target.model, "prompt": server.prompt(64), "max_tokens": 3, "ignore_eos": True}
    return json.dumps(fields | {"kv_transfer_params": {"decodebench": asked}}).encode()


@pytest.mark.parametrize("asked", WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_answered_with_what_is_wrong_with_it(server, asked):
    async def case(api):
        reply = await api.post(body_of(server, asked))
        return reply, await api.complete(64, 3)

    reply, after = talk(server, case)
    assert reply.status == 200, reply.body
    assert reply.said["error"].startswith("kv_transfer_params.decodebench")
    assert len(reply.said["error"]) < 500
    assert reply.output_tokens == 3
    assert after.status == 200


@pytest.mark.parametrize("asked", TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_value_too_much_for_the_api_is_refused_or_answered_and_the_server_lives(server, asked):
    """JSON that the server's own layers may refuse before the connector sees it."""
    body = body_of(server, asked)
    if asked is None:
        deep = b"[" * 100_000 + b"]" * 100_000
        body = body.replace(b'"decodebench": null', b'"decodebench": ' + deep)

    async def case(api):
        return await api.post(body), await api.complete(64, 3)

    reply, after = talk(server, case)
    if reply.status == 200:
        assert reply.said["error"].startswith("kv_transfer_params.decodebench")
    assert after.status == 200
    assert "error" not in after.said


@pytest.mark.parametrize(
    "params", [[], "x", 1, {"other": {}}, {}, {"do_remote_prefill": True, "remote_engine_id": 1}]
)
def test_params_that_do_not_name_us_are_left_alone(server, params):
    async def case(api):
        fields = {"model": server.target.model, "prompt": server.prompt(64), "max_tokens": 3}
        return await api.post(fields | {"kv_transfer_params": params}), await api.complete(64, 3)

    reply, after = talk(server, case)
    assert reply.status == (200 if isinstance(params, dict) else 400)
    assert not reply.said
    assert after.status == 200


def test_fill_false_runs_a_real_prefill(server):
    """The same prompt gives the same tokens each time, and the engine computes every one of its tokens."""
    name = "vllm:prompt_tokens_by_source_total"

    async def case(api):
        before = await api.metric(name)
        prompt = server.prompt(700)
        real = [await api.complete(prompt, 8, {"fill": False}, cache_salt=f"real-{n}") for n in range(2)]
        return before, real, await api.complete(prompt, 8)

    _, real, filled = talk(server, case)
    assert real[0].text == real[1].text
    assert real[0].text != filled.text
    for reply in real:
        assert (reply.body["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0) == 0


def test_info_describes_the_engine(server):
    reply = talk(server, lambda api: api.complete(64, 2, {"info": True}))
    info = reply.said["info"]
    assert info["connector"]["class"] == CONNECTOR_CLASS
    assert [group["kind"] for group in info["groups"]] == ["sliding_window"] * 5 + ["full_attention"]
    assert info["hybrid_kv_cache_manager"] is True
    assert info == server.engine.first


def test_a_plain_client_needs_to_know_nothing(server):
    """No salt, no params, streamed: as with the in-tree connector, the request is filled and decodes."""

    async def case(api):
        chat = {
            "model": server.target.model,
            "messages": [{"role": "user", "content": "babe bidu " * 100}],
            "max_tokens": 8,
            "ignore_eos": True,
        }
        plain = {
            "model": server.target.model,
            "prompt": "babe bidu " * 100,
            "max_tokens": 8,
            "ignore_eos": True,
        }
        return await api.stream(chat, "/v1/chat/completions"), await api.stream(plain, "/v1/completions")

    for events in talk(server, case):
        assert events[-1] == "[DONE]"
        choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
        assert choices[-1]["finish_reason"] == "length"
        assert len(choices) >= 8


def test_a_streaming_member_of_a_cohort_decodes_in_it(server):
    """Its own answer carries no params, but the cohort is whole and exact."""
    import asyncio

    async def case(api):
        asked = {"decodebench": {"cohort": {"id": "streamed", "size": 3}}}
        streamed = {
            "model": server.target.model,
            "prompt": server.prompt(500),
            "max_tokens": 12,
            "ignore_eos": True,
            "cache_salt": "streamed",
            "kv_transfer_params": asked,
        }
        plain = api.cohort("streamed", 3, 500, 12, send=2)
        await api.until_waiting(2)
        events = await api.stream(streamed, "/v1/completions")
        return events, await asyncio.gather(*plain)

    events, replies = talk(server, case)
    assert events[-1] == "[DONE]"
    assert [reply.said["cohort"]["filled"] for reply in replies] == [3, 3]
    assert not any("error" in reply.said for reply in replies)
