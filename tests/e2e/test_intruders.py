"""What spoils a window on the real server makes the repeat invalid, and the reason names it."""

import asyncio

import pytest

from tests.e2e.client import judge, talk
from tests.e2e.servers import GEMMA3, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, on(GEMMA3)]

SIZE = 4
CONTEXT = 8_000  # room for a long window: 128 steps, so that what is sent while it decodes falls into it
WINDOW_STEPS = 128


@pytest.fixture
def plan(server):
    return server.plan(CONTEXT, WINDOW_STEPS)


def test_a_foreign_request_inside_the_window(server, plan):
    async def case(api):
        members = api.cohort("intruded", SIZE, plan.prompt_len, plan.max_tokens)
        await api.until_running(SIZE)
        await asyncio.sleep(0)
        foreign = await api.complete(100, plan.max_tokens // 2)
        return foreign, await asyncio.gather(*members)

    foreign, replies = talk(server, case)
    assert foreign.status == 200
    outcome = judge(server, plan, SIZE, replies)
    assert outcome.judged.verdict.rule in ("foreign", "fill")
    assert "window" in outcome.judged.verdict.reason
    assert outcome.judged.windows[0].rows.foreign_reqs.any()


def test_a_foreign_prefill_inside_the_window(server, plan):
    async def case(api):
        members = api.cohort("prefilled", SIZE, plan.prompt_len, plan.max_tokens)
        await api.until_running(SIZE)
        foreign = await api.complete(500, plan.max_tokens // 2, {"fill": False})
        return foreign, await asyncio.gather(*members)

    foreign, replies = talk(server, case)
    assert foreign.status == 200
    verdict = judge(server, plan, SIZE, replies).judged.verdict
    assert verdict.rule == "foreign"
    assert "also ran 1 request(s) from outside the cohort" in verdict.reason


def test_an_abort_inside_the_window(server, plan):
    async def case(api):
        members = api.cohort("aborted", SIZE, plan.prompt_len, plan.max_tokens)
        await api.until_running(SIZE)
        members[0].cancel()
        return await asyncio.gather(*members[1:])

    replies = talk(server, case)
    outcome = judge(server, plan, SIZE, replies)
    assert outcome.fault == f"1 of {SIZE} members were aborted after the release"
    assert outcome.judged.verdict.rule == "batch"
    assert f"ran {SIZE - 1} request(s) instead of {SIZE}" in outcome.judged.verdict.reason


def test_an_abort_before_the_release_breaks_the_cohort_and_the_others_are_told(server):
    async def case(api):
        members = api.cohort("left", SIZE, 500, 4, send=SIZE - 1)
        await api.until_waiting(SIZE - 1)
        members[0].cancel()
        return await asyncio.gather(*members[1:])

    for reply in talk(server, case):
        assert "'left': a member was aborted before all 4 were released" in reply.said["error"]
        assert reply.output_tokens == 4


def test_a_pool_too_small_for_the_cohort(server, plan):
    size = 12  # x 8,000 tokens: more than the 1,023 blocks
    replies = talk(
        server, lambda api: asyncio.gather(*api.cohort("big", size, plan.prompt_len, plan.max_tokens))
    )
    fault = judge(server, plan, size, replies).fault
    assert "does not fit: needs" in fault
    assert "of 1023 blocks" in fault
    assert {reply.output_tokens for reply in replies} == {plan.max_tokens}


def test_a_pool_that_runs_out_inside_the_window(server):
    """Others take what the cohort left free; then its own growth preempts them in the middle of the window."""
    plan = server.plan(CONTEXT, WINDOW_STEPS)
    size = 8
    cohort_blocks = server.engine.limits.blocks_needed([plan.prompt_len + plan.max_tokens] * size)
    one = server.engine.limits.blocks_needed([CONTEXT])
    others = -(-(server.engine.limits.usable_blocks - cohort_blocks) // one) + 1

    async def case(api):
        members = api.cohort("squeezed", size, plan.prompt_len, plan.max_tokens)
        await api.until_running(size)
        foreign = [asyncio.create_task(api.complete(CONTEXT, plan.max_tokens)) for _ in range(others)]
        replies = await asyncio.gather(*members)
        return replies, await asyncio.gather(*foreign)

    replies, foreign = talk(server, case)
    assert {reply.status for reply in foreign} == {200}
    outcome = judge(server, plan, size, replies)
    assert not outcome.judged.verdict.valid
    assert outcome.judged.windows[0].rows.foreign_reqs.any()
