"""Donors that cannot be: the answer says why, the request is filled with the server's numbers, the server lives on."""

import asyncio

import pytest

from decodebench.bench.client import describe_ranks
from tests.e2e.client import talk
from tests.e2e.self_donor import Continuation, Donors, kind
from tests.e2e.servers import on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, pytest.mark.matrix, on(kind("tiny-gemma3", "on"))]

LENGTH = 700
MOST_DONORS = 200


async def refused(donors: Donors, api, asked: dict, length: int = LENGTH) -> str:
    """The error of a fill that asks for such donors. It runs all the same, and a sound one after it passes."""
    reply = await api.complete(length, 3, asked)
    assert reply.output_tokens == 3
    this = await donors.trial(LENGTH)
    donor = await donors.keep(this.donor)
    sound = await donors.go_on(this.prompt, donor)
    assert Continuation.of(sound) == this.expected
    assert "error" not in sound.said
    await donors.forget(donor)
    return reply.said["error"]


def test_an_unknown_donor_is_told(server):
    async def case(api):
        return await refused(Donors(api, server), api, {"donors": ["nobody"]})

    error = talk(server, case)
    assert "filled with the server's numbers: donor 'nobody' is not held here" in error


def test_a_forgotten_donor_is_told(server):
    async def case(api):
        donors = Donors(api, server)
        donor = await donors.keep(server.prompt(LENGTH))
        await donors.forget(donor)
        return donor, await refused(donors, api, {"donors": [donor]})

    donor, error = talk(server, case)
    assert f"donor {donor!r} is not held here" in error
    assert "forgotten" in error


def test_a_donor_too_short_for_the_window_is_told_with_numbers(server):
    least = server.engine.first["donor_bank"]["min_tokens"]

    async def case(api):
        donors = Donors(api, server)
        short = await donors.keep(server.prompt(least - 1))
        error = await refused(donors, api, {"donors": [short]})
        await donors.forget(short)
        return error

    error = talk(server, case)
    assert f"{least - 1} tokens, but a sliding window needs {least}" in error
    assert f"send donors of at least {least} tokens" in error


def test_a_donor_name_that_is_taken_is_told_and_the_first_stays(server):
    async def case(api):
        donors = Donors(api, server)
        this = await donors.trial(LENGTH)
        donor = await donors.keep(this.donor)
        again = await api.complete(LENGTH, 1, {"donor": {"id": donor}})
        reply = await donors.go_on(this.prompt, donor)
        await donors.forget(donor)
        assert "exists already" in again.said["error"]
        assert this.passes(reply)

    talk(server, case)


def test_a_bank_over_its_limit_refuses_with_numbers_and_what_it_holds_stays_good(server):
    longest = server.engine.first["max_model_len"] - 1

    async def case(api):
        donors = Donors(api, server)
        this = await donors.trial(LENGTH)
        held = [await donors.keep(this.donor)]
        for number in range(MOST_DONORS):
            reply = await api.complete(longest, 1, {"donor": {"id": f"more-{number}"}})
            if "donor" not in reply.said:
                break
            held.append(reply.said["donor"]["id"])
        assert this.passes(await donors.go_on(this.prompt, held[0]))
        for donor in held:
            await donors.forget(donor)
        return reply.said["error"]

    error = talk(server, case)
    (rank,) = describe_ranks(server.target)
    bank = rank["donor_bank"]
    assert f"of {bank['limit_bytes']:,} free" in error
    assert "raise donor_bank_gib" in error
    assert (bank["donors"], bank["used_bytes"]) == ({}, 0)


def test_a_donor_asked_for_while_the_pool_is_full_is_made_once_there_is_room(server):
    async def case(api):
        donors = Donors(api, server)
        this = await donors.trial(LENGTH)
        most = server.engine.first["max_num_seqs"] - 1
        before = await api.metric("vllm:num_preemptions_total")
        crowd = [asyncio.create_task(api.complete(LENGTH, 320)) for _ in range(most)]
        await api.until_running(most // 2)
        donor = await donors.keep(this.donor)
        await asyncio.gather(*crowd)
        assert await api.metric("vllm:num_preemptions_total") > before, "the pool was never full"
        assert this.passes(await donors.go_on(this.prompt, donor))
        await donors.forget(donor)

    talk(server, case)
