"""Every data-parallel rank has a bank of its own: it fills from its own donors, and does not know those of others."""

import pytest

from decodebench.bench.client import describe_ranks
from decodebench.bench.donor_set import DonorOptions
from decodebench.bench.donors import forget_donors, prefill_donors
from tests.e2e.client import talk
from tests.e2e.self_donor import Continuation, Donors, kind
from tests.e2e.servers import on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, pytest.mark.matrix]

RANKS = (0, 1)
DP2 = on(kind("tiny-llama", "on", "--data-parallel-size", "2", name="-dp2"))


@DP2
def test_each_rank_goes_on_from_its_own_donor_as_really_prefilled(server):
    async def case(api):
        for rank in RANKS:
            donors = Donors(api, server, rank)
            this = await donors.trial(403)
            donor = await donors.keep(this.donor)
            reply = await donors.go_on(this.prompt, donor)
            assert Continuation.of(reply) == this.expected, f"rank {rank}"
            assert "error" not in reply.said
            await donors.forget(donor)

    talk(server, case)


@DP2
def test_a_rank_without_the_donor_says_so_and_lives_on(server):
    async def case(api):
        for rank in RANKS:
            here, there = Donors(api, server, rank), Donors(api, server, 1 - rank)
            this = await here.trial(403)
            donor = await here.keep(this.donor)
            elsewhere = await there.go_on(this.prompt, donor)
            assert f"donor {donor!r} is not held here" in elsewhere.said["error"]
            assert "data-parallel rank" in elsewhere.said["error"]
            assert not this.passes(elsewhere)
            assert this.passes(await here.go_on(this.prompt, donor))
            await here.forget(donor)

    talk(server, case)


@DP2
def test_a_run_makes_the_same_donors_on_every_rank(server):
    made = prefill_donors(
        server.target,
        server.engine,
        DonorOptions(count=3, length=300),
        text=None,
        batch=2,
        longest=600,
        seed=0,
        launch=0,
        name="ranks",
        check=server.server.check,
    )
    held = [rank["donor_bank"]["donors"] for rank in describe_ranks(server.target)]
    assert held == [dict.fromkeys(made.donors.ids, 300)] * 2
    assert made.phase.tokens == 2 * 3 * 300
    forget_donors(server.target, made.donors, 2)
    assert [rank["donor_bank"]["donors"] for rank in describe_ranks(server.target)] == [{}, {}]
