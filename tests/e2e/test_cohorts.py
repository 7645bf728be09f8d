"""Cohorts over HTTP: each gets steps of its own, and one that cannot be exact says why to every member."""

import asyncio

import numpy as np
import pytest

from tests.e2e.client import judge, talk
from tests.e2e.servers import GEMMA3, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, on(GEMMA3)]

SIZE = 4


def steps_of(replies):
    """The step log, which exactly one answer carries."""
    logs = [reply.said["steps"] for reply in replies if "steps" in reply.said]
    assert len(logs) == 1
    return logs[0]


def test_two_interleaved_cohorts_each_get_their_own_steps(server):
    plan = server.plan(2_000)

    async def case(api):
        members = {"a": [], "b": []}
        for _ in range(SIZE):
            for name, tasks in members.items():
                tasks += api.cohort(f"inter-{name}", SIZE, plan.prompt_len, plan.max_tokens, send=1)
        return [await asyncio.gather(*tasks) for tasks in members.values()]

    ran = []
    for replies in talk(server, case):
        assert not [reply.said["error"] for reply in replies if "error" in reply.said]
        steps = steps_of(replies)
        decoding = np.array(steps["num_reqs"]) > 0
        assert set(np.array(steps["num_reqs"])[decoding]) == {SIZE}
        assert not any(steps["foreign_reqs"])
        ran.append(set(np.array(steps["step"])[decoding]))
    assert len(ran[0]) == len(ran[1]) == plan.max_tokens
    assert not ran[0] & ran[1]


def test_a_partial_cohort_blocks_nobody_and_expires_with_its_reason(server):
    async def case(api):
        partial = api.cohort("partial", SIZE, 500, 4, send=SIZE - 1, timeout_s=5)
        await api.until_waiting(SIZE - 1)
        other = await api.complete(500, 8)
        cohort = await asyncio.gather(*api.cohort("passing", 2, 500, 8))
        assert not any(task.done() for task in partial)
        return other, cohort, await asyncio.gather(*partial)

    other, cohort, expired = talk(server, case)
    assert other.output_tokens == 8
    assert not any("error" in reply.said for reply in cohort)
    for reply in expired:
        assert reply.said["error"] == "cohort 'partial' expired after 5 s: 3 of 4 members had arrived"
        assert reply.output_tokens == 4


def test_a_list_of_prompts_in_one_call_is_one_cohort_with_the_log_in_its_answer(server):
    plan = server.plan(1_000)
    asked = {"cohort": {"id": "list", "size": SIZE}}

    async def case(api):
        prompts = [server.prompt(plan.prompt_len) for _ in range(SIZE)]
        return await api.complete(prompts, plan.max_tokens, asked)

    reply = talk(server, case)
    assert len(reply.body["choices"]) == SIZE
    assert "error" not in reply.said
    assert reply.said["cohort"]["filled"] == SIZE
    rows = np.array(reply.said["steps"]["num_reqs"])
    assert set(rows[rows > 0]) == {SIZE}


def test_more_members_than_max_num_seqs_are_told_so_and_all_run(server):
    limit = server.engine.first["max_num_seqs"]
    replies = talk(server, lambda api: asyncio.gather(*api.cohort("crowd", limit + 1, 50, 4)))
    for reply in replies:
        assert f"does not fit: {limit + 1} requests, but --max-num-seqs is {limit}" in reply.said["error"]
        assert reply.output_tokens == 4


def test_as_many_members_as_max_num_seqs_are_exact(server):
    limit = server.engine.first["max_num_seqs"]
    plan = server.plan(1_000)
    replies = talk(
        server, lambda api: asyncio.gather(*api.cohort("full", limit, plan.prompt_len, plan.max_tokens))
    )
    assert judge(server, plan, limit, replies).judged.verdict.rule in (None, "drifting")


def test_a_member_with_a_prompt_of_one_token_breaks_the_cohort(server):
    async def case(api):
        members = api.cohort("tiny", SIZE, 500, 4, send=SIZE - 1)
        return await asyncio.gather(*members, *api.cohort("tiny", SIZE, 1, 4, send=1))

    for reply in talk(server, case):
        assert "a member has nothing to fill (a prompt of one token" in reply.said["error"]
        assert reply.output_tokens == 4


def test_members_with_prompt_logprobs_break_the_cohort(server):
    """The engine has to compute a prompt whose logprobs are asked, so it throws the connector's answer away."""
    replies = talk(server, lambda api: asyncio.gather(*api.cohort("logprobs", 2, 100, 4, prompt_logprobs=1)))
    for reply in replies:
        assert reply.status == 200
        assert "prompt_logprobs" in reply.said["error"]


def test_members_that_name_different_sizes_are_told(server):
    async def case(api):
        first = api.cohort("sizes", 3, 100, 4, send=1)
        await api.until_waiting(1)
        return await asyncio.gather(*first, *api.cohort("sizes", 2, 100, 4, send=1))

    for reply in talk(server, case):
        assert "one member names size 3, another 2" in reply.said["error"]


def test_greedy_outputs_of_filled_requests_are_not_all_alike(server):
    replies = talk(server, lambda api: asyncio.gather(*api.cohort("varied", SIZE, 1_000, 16)))
    assert len({reply.text for reply in replies}) > 1
