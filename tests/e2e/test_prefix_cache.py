"""Filled blocks are in the prefix cache under the prompt's hashes; a salt keeps them away from everybody else."""

import pytest

from tests.e2e.client import talk
from tests.e2e.servers import GEMMA3, GEMMA3_SYNC, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

HITS = "vllm:prefix_cache_hits_total"
HITS_OF_FILLS = "vllm:external_prefix_cache_hits_total"
PROMPT = 1_000
REAL = {"fill": False}


async def hits_of(api, *args, **fields):
    """Send a completion; the reply, and how many of its tokens came from the prefix cache."""
    before = await api.metric(HITS)
    reply = await api.complete(*args, **fields)
    return reply, await api.metric(HITS) - before


@on(GEMMA3)
def test_an_honest_request_with_another_salt_hits_nothing_of_a_fill(server):
    async def case(api):
        prompt = server.prompt(PROMPT)
        honest = await api.complete(prompt, 8, REAL, cache_salt="honest-before")
        await api.complete(prompt, 8, cache_salt="made-up")
        later = await hits_of(api, prompt, 8, REAL, cache_salt="honest-after")
        misled = await hits_of(api, prompt, 8, REAL, cache_salt="made-up")
        return honest, later, misled

    honest, (later, hits), (misled, made_up_hits) = talk(server, case)
    assert hits == 0
    assert later.text == honest.text
    assert made_up_hits >= 896  # the salt is what keeps it from them: with that of the fill they are found
    assert misled.text != honest.text


@on(GEMMA3)
def test_a_fill_without_salt_works_and_is_found_by_the_next_one_without(server):
    async def case(api):
        prompt = server.prompt(PROMPT)
        first = await hits_of(api, prompt, 8, cache_salt=None)
        again = await hits_of(api, prompt, 8, cache_salt=None)
        return first, again

    (first, first_hits), (again, later_hits) = talk(server, case)
    assert (first.said, again.said) == ({}, {})
    assert first_hits == 0
    assert later_hits >= 896
    warnings = server.server.spec.log_path.read_text().count("a filled request has no cache_salt")
    assert warnings == 1


@on(GEMMA3)
def test_members_that_hit_the_prefix_cache_are_counted(server):
    async def case(api):
        prompt = server.prompt(PROMPT)
        await api.complete(prompt, 2, cache_salt="again")
        asked = {"cohort": {"id": "again", "size": 1}}
        return await api.complete(prompt, 2, asked, cache_salt="again")

    assert talk(server, case).said["cohort"]["local_tokens"] >= 896


@on(GEMMA3)
def test_fill_false_computes_every_token_and_the_default_none_but_the_last(server):
    async def case(api):
        before = await api.metric(HITS_OF_FILLS)
        real = [await api.complete(server.prompt(700), 8, REAL) for _ in range(2)]
        between = await api.metric(HITS_OF_FILLS)
        await api.complete(700, 8)
        return before, real, between, await api.metric(HITS_OF_FILLS)

    before, real, between, after = talk(server, case)
    assert between == before
    assert after == between + 699
    assert real[0].text != real[1].text


@on(GEMMA3_SYNC)
def test_require_salt_refuses_an_unsalted_fill_and_computes_the_prompt_instead(server):
    async def case(api):
        prompt = server.prompt(PROMPT)
        honest = await api.complete(prompt, 8, REAL, cache_salt="honest")
        unsalted = await api.complete(prompt, 8, {}, cache_salt=None)
        return honest, unsalted, await api.complete(prompt, 8, {}, cache_salt="salted")

    honest, unsalted, salted = talk(server, case)
    assert "requires a cache_salt" in unsalted.said["error"]
    assert unsalted.text == honest.text
    assert "error" not in salted.said
    assert salted.text != honest.text


@on(GEMMA3_SYNC)
def test_require_salt_refuses_an_unsalted_cohort(server):
    import asyncio

    replies = talk(server, lambda api: asyncio.gather(*api.cohort("unsalted", 2, 200, 4, cache_salt=None)))
    for reply in replies:
        assert "requires a cache_salt" in reply.said["error"]
        assert reply.output_tokens == 4
