"""Self-donor equality: a prompt that is filled from its own donor goes on as if it had been really prefilled.

This proves that every page of every KV cache group is kept and put where it belongs. The donor of a prompt P is P
without its last token. The reference is a real prefill of P[:-1] followed by decode steps: P ends with the greedy token
after P[:-1], so one real request of P[:-1] puts P[-1] out first and then what P must go on with. Prefill and decode
kernels round differently; this way both sides compute P[-1] and all that follows in decode steps of one request, and
tokens and logprobs must be *equal*, bit for bit.

Controls that must fail show what the equality can see: another prompt's donor, a donor one token too long (states have
seen the last token twice), and each single group's pages left out. The pool is poisoned before, by fills with a large
number.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest

from decodebench.engine import recipes
from tests.e2e.client import Api, Reply, talk
from tests.e2e.leaving_out import LEAVE_OUT
from tests.e2e.servers import Running, ServerKind

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

OUTPUT = 16
DISTINCT = 8
CACHING = {"on": "--enable-prefix-caching", "off": "--no-enable-prefix-caching"}
DEFAULT = {("tiny-gemma3", "on"), ("tiny-granite", "on")}
ROUNDING = (
    0.2  # mean difference of logprobs between prefill and decode kernels, at most; bf16, logprobs around -5
)
SMALL = {"tiny-deepseek-v4": ("64M", "1100"), "small-moe": ("512M", "2048"), "small-hybrid": ("512M", "2048")}
"""Memory of the pool and longest context, where 16M and 2,048 are not right."""


def kind(recipe: str, caching: str) -> ServerKind:
    memory, longest = SMALL.get(recipe, ("16M", "2048"))
    small = ("--kv-cache-memory-bytes", memory, "--max-num-seqs", "16", "--max-model-len", longest)
    return ServerKind(
        f"{recipe}-donors-prefix-caching-{caching}",
        recipe,
        (*small, CACHING[caching]),
        {"fill_mean": 30.0},
        module="tests.e2e.leaving_out",
    )


SERVERS = pytest.mark.parametrize(
    "server",
    [
        pytest.param(
            kind(recipe, caching),
            id=str(kind(recipe, caching)),
            marks=[] if (recipe, caching) in DEFAULT else pytest.mark.matrix,
        )
        for recipe in recipes.names()
        for caching in CACHING
    ],
    indirect=True,
)


@dataclass(frozen=True)
class Continuation:
    """What a request put out: token ids and the logprob of each."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, reply: Reply, first: int = 0) -> "Continuation":
        assert reply.status == 200, reply.body
        choice = reply.body["choices"][0]
        return cls(tuple(choice["token_ids"][first:]), tuple(choice["logprobs"]["token_logprobs"][first:]))


@dataclass(frozen=True)
class Trial:
    """A prompt P, and how it really goes on after a prefill of P[:-1]."""

    prompt: list[int]
    expected: Continuation

    @property
    def donor(self) -> list[int]:
        return self.prompt[:-1]

    def passes(self, reply: Reply) -> bool:
        """Whether the answer goes on as it must. Logits that are NaN have no JSON: the API answers with an error."""
        return reply.status == 200 and Continuation.of(reply) == self.expected


class Donors:
    """What the cases ask of one server."""

    def __init__(self, api: Api, server: Running) -> None:
        self._api = api
        self._server = server

    async def trial(self, length: int, count: int = OUTPUT) -> Trial:
        """A prompt of `length` + 1 tokens whose continuation says something: enough distinct tokens."""
        for _ in range(20):
            prompt = self._server.prompt(length)
            real = await self._continue(prompt, {"fill": False}, count + 1)
            expected = Continuation.of(real, first=1)
            if len(set(expected.tokens[:OUTPUT])) >= DISTINCT:
                return Trial([*prompt, Continuation.of(real).tokens[0]], expected)
        raise AssertionError(f"20 prompts of {length} tokens, and none puts out {DISTINCT} distinct tokens")

    async def keep(self, prompt: list[int]) -> str:
        """Make a donor of a prompt."""
        name = f"d{self._api.number()}"
        reply = await self._api.complete(prompt, 1, {"donor": {"id": name}})
        assert "error" not in reply.said, reply.said
        return name

    async def forget(self, donor: str) -> None:
        reply = await self._api.complete(2, 1, {"fill": False, "forget": [donor]})
        assert "error" not in reply.said, reply.said

    async def poison(self) -> None:
        """Write a large number into every block of the pool."""
        facts = self._server.engine.first
        requests = (
            2
            + facts["num_blocks"]
            * min(group["block_size"] for group in facts["groups"])
            // facts["max_model_len"]
        )
        for _ in range(min(requests, 8)):
            assert (await self._api.complete(facts["max_model_len"] - 1, 1)).status == 200

    async def go_on(self, prompt: list[int], donor: str, seed: int = 0, count: int = OUTPUT) -> Reply:
        """How a prompt that is filled from a donor goes on, the pool poisoned before."""
        await self.poison()
        return await self._continue(prompt, {"donors": [donor], "seed": seed}, count)

    async def crowded(self, prompt: list[int], donor: str, count: int) -> list[Reply]:
        """The same request as often as the engine takes it at once: more than the pool has room for in the end."""
        await self.poison()
        asked = {"donors": [donor]}
        requests = range(self._server.engine.first["max_num_seqs"])
        return await asyncio.gather(*(self._continue(prompt, asked, count) for _ in requests))

    async def apart(self, prompt: list[int], reply: Reply) -> float:
        """Mean difference between an answer's logprobs and those that a real prefill of both gives the same tokens."""
        put_out = Continuation.of(reply)
        whole = [*prompt, *put_out.tokens]
        real = await self._api.complete(whole, 1, {"fill": False}, prompt_logprobs=1)
        found = real.body["choices"][0]["prompt_logprobs"][len(prompt) :]
        pairs = zip(put_out.tokens, put_out.logprobs, found, strict=True)
        differences = [abs(ours - theirs[str(token)]["logprob"]) for token, ours, theirs in pairs]
        return sum(differences) / len(differences)

    async def _continue(self, prompt: list[int], asked: dict, count: int) -> Reply:
        return await self._api.complete(prompt, count, asked, logprobs=1, return_token_ids=True)


def edges(server: Running) -> list[int]:
    """Donor lengths before, on and after the edges of blocks and windows."""
    facts = server.engine.first
    longest = facts["max_model_len"] - OUTPUT - 2
    blocks = {group["block_size"] for group in facts["groups"] if group["block_size"] <= longest // 2}
    windows = {group["window"] for group in facts["groups"] if 0 < group["window"] <= longest // 2}
    marks = {2 * max(blocks), *blocks, *windows, *(window + max(blocks) for window in windows)}
    return sorted({mark + offset for mark in marks for offset in (-1, 0, 1) if 8 <= mark + offset <= longest})


def controls(server: Running) -> list[int]:
    """A few lengths inside of blocks."""
    step = server.engine.first["max_model_len"] // 8
    return [step - 13, 2 * step + 5, 3 * step + 1, 4 * step - 3]


@SERVERS
def test_a_prompt_filled_from_its_own_donor_goes_on_as_really_prefilled(server):
    async def case(api, length):
        donors = Donors(api, server)
        this = await donors.trial(length)
        donor = await donors.keep(this.donor)
        reply = await donors.go_on(this.prompt, donor)
        assert "error" not in reply.said, reply.said
        assert Continuation.of(reply) == this.expected, f"after a donor of {length} tokens"
        await donors.forget(donor)
        return this.expected.tokens

    lengths = edges(server)
    assert len({talk(server, partial(case, length=length)) for length in lengths}) == len(lengths)


@SERVERS
def test_another_prompts_donor_does_not_pass(server):
    async def case(api):
        donors, passed = Donors(api, server), []
        for length in controls(server):
            this = await donors.trial(length)
            other = await donors.keep(server.prompt(length))
            passed.append(this.passes(await donors.go_on(this.prompt, other)))
            await donors.forget(other)
        assert sum(passed) <= 1, passed

    talk(server, case)


@SERVERS
def test_a_donor_one_token_too_long_does_not_pass_where_there_is_state(server):
    if not any(group["kind"] == "state" for group in server.engine.first["groups"]):
        pytest.skip("attention overwrites the row of the last token; only a state has seen it twice")

    async def case(api):
        donors, passed = Donors(api, server), []
        for length in controls(server):
            this = await donors.trial(length)
            long = await donors.keep(this.prompt)
            passed.append(this.passes(await donors.go_on(this.prompt, long)))
            await donors.forget(long)
        assert sum(passed) <= 1, passed

    talk(server, case)


@SERVERS
def test_without_the_pages_of_any_single_group_it_does_not_pass(server):
    async def case(api, group):
        donors, passed = Donors(api, server), []
        for length in controls(server):
            this = await donors.trial(length)
            donor = await donors.keep(this.donor)
            reply = await donors.go_on(this.prompt, donor, seed=LEAVE_OUT + group)
            if reply.status == 200:
                assert "the plan says" in reply.said["error"]  # the workers' account of pages sees it as well
            passed.append(this.passes(reply))
            await donors.forget(donor)
        return passed

    for group in range(len(server.engine.first["groups"])):
        passed = talk(server, partial(case, group=group))
        assert sum(passed) <= 1, (group, passed)


@SERVERS
def test_after_a_preemption_it_goes_on_as_really_prefilled(server):
    """Its prompt is filled again and its output is computed again, in one piece.

    In a crowd no two runs round alike, so tokens part ways. But whatever a request put out, a real prefill of prompt
    and output must find each token about as likely: the mean difference of logprobs stays within the rounding of
    prefill against decode kernels. With another prompt's donor it is several times as much (a state forgets a prompt
    over the output, so not always beyond what rounding may be).
    """
    count = 20 * OUTPUT

    async def case(api):
        donors, facts = Donors(api, server), server.engine.first
        this = await donors.trial(facts["max_model_len"] // 4 + 3)
        apart = []
        for kept in (this.donor, server.prompt(len(this.donor))):
            donor = await donors.keep(kept)
            before = await api.metric("vllm:num_preemptions_total")
            replies = await donors.crowded(this.prompt, donor, count)
            assert await api.metric("vllm:num_preemptions_total") > before, "the pool was never too small"
            apart.append(max([await donors.apart(this.prompt, reply) for reply in replies[-4:]]))
            await donors.forget(donor)
        assert apart[0] < ROUNDING, apart
        assert 3 * apart[0] < apart[1], apart

    talk(server, case)


@SERVERS
def test_an_audit_proves_the_copied_pages(server):
    async def case(api):
        donors = Donors(api, server)
        this = await donors.trial(controls(server)[1])
        donor = await donors.keep(this.donor)
        await donors.poison()
        reply = await api.complete(this.prompt, 4, {"donors": [donor], "audit": True})
        audit = reply.said["audit"]
        assert audit["mismatches"] == audit["unowned_changed"] == 0
        assert sum(audit["pages"]) >= sum(reply.said["donor_pages"]) > 0
        assert audit["unowned_pages"] > 0
        await donors.forget(donor)

    talk(server, case)
