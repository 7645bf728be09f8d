"""What the cases of self-donor equality share: the servers, a prompt with its real continuation, and donors by hand."""

import asyncio
from dataclasses import dataclass

from tests.e2e.client import Api, Reply
from tests.e2e.servers import UNBOUND, Running, ServerKind

OUTPUT = 16
DISTINCT = 8
CACHING = {"on": "--enable-prefix-caching", "off": "--no-enable-prefix-caching"}
SMALL = {
    "tiny-deepseek-v4": ("64M", "1100"),
    "tiny-qwen3-next": ("12M", "2048"),
    "small-moe": ("32M", "2048"),
    "small-hybrid": ("32M", "2048"),
}
"""Memory of the pool and longest context, where 16M and 2,048 are not right: 16 requests of 835 tokens are too much."""
BANK_GIB = 1 / 16
"""A few donors of the longest context fill it."""


def kind(recipe: str, caching: str, *args: str, name: str = "") -> ServerKind:
    """A server with a small poisoned pool, whose connector leaves a group out on request (`leaving_out`)."""
    memory, longest = SMALL.get(recipe, ("16M", "2048"))
    small = ("--kv-cache-memory-bytes", memory, "--max-num-seqs", "16", "--max-model-len", longest)
    return ServerKind(
        f"{recipe}-donors{name}-prefix-caching-{caching}",
        recipe,
        (*small, CACHING[caching], *args),
        {"fill_mean": 30.0, "donor_bank_gib": BANK_GIB},
        env=UNBOUND if args else {},
        module="tests.e2e.leaving_out",
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

    def __init__(self, api: Api, server: Running, rank: int | None = None) -> None:
        self._api = api
        self._server = server
        self._rank = rank  # data-parallel rank

    async def trial(self, length: int, count: int = OUTPUT) -> Trial:
        """A prompt of `length` + 1 tokens whose continuation says something: enough distinct tokens."""
        for _ in range(20):
            prompt = self._server.prompt(length)
            real = await self.really(prompt, count + 1)
            expected = Continuation.of(real, first=1)
            if len(set(expected.tokens[:OUTPUT])) >= DISTINCT:
                return Trial([*prompt, Continuation.of(real).tokens[0]], expected)
        raise AssertionError(f"20 prompts of {length} tokens, and none puts out {DISTINCT} distinct tokens")

    async def really(self, prompt: list[int], count: int) -> Reply:
        """How a prompt goes on that is really prefilled."""
        return await self._continue(prompt, {"fill": False}, count)

    async def keep(self, prompt: list[int]) -> str:
        """Make a donor of a prompt."""
        name = f"d{self._api.number()}"
        reply = await self._api.complete(prompt, 1, {"donor": {"id": name}}, self._rank)
        assert "error" not in reply.said, reply.said
        return name

    async def forget(self, donor: str) -> None:
        reply = await self._api.complete(2, 1, {"fill": False, "forget": [donor]}, self._rank)
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
            reply = await self._api.complete(facts["max_model_len"] - 1, 1, {}, self._rank)
            assert reply.status == 200, reply.body

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
        real = await self._api.complete(whole, 1, {"fill": False}, self._rank, prompt_logprobs=1)
        found = real.body["choices"][0]["prompt_logprobs"][len(prompt) :]
        pairs = zip(put_out.tokens, put_out.logprobs, found, strict=True)
        differences = [abs(ours - theirs[str(token)]["logprob"]) for token, ours, theirs in pairs]
        return sum(differences) / len(differences)

    async def _continue(self, prompt: list[int], asked: dict, count: int) -> Reply:
        return await self._api.complete(prompt, count, asked, self._rank, logprobs=1, return_token_ids=True)


def edges(server: Running) -> list[int]:
    """Donor lengths before, on and after the edges of blocks and windows."""
    facts = server.engine.first
    longest = facts["max_model_len"] - OUTPUT - 2
    blocks = {group["block_size"] for group in facts["groups"] if group["block_size"] <= longest // 2}
    windows = {group["window"] for group in facts["groups"] if 0 < group["window"] <= longest // 2}
    marks = {2 * max(blocks), *blocks, *windows, *(window + max(blocks) for window in windows)}
    return sorted({mark + offset for mark in marks for offset in (-1, 0, 1) if 8 <= mark + offset <= longest})


def controls(server: Running) -> list[int]:
    """A few lengths inside of blocks, shortly before a multiple of 128.

    DeepSeek-V4 reads the states of its compressors only when 4 or 128 tokens are full, so the output must get there for
    those groups to count.
    """
    lengths = [2 * 128 - 5, 3 * 128 - 9, 5 * 128 - 11, 7 * 128 - 3]
    assert lengths[-1] + 2 * OUTPUT < server.engine.first["max_model_len"]
    return lengths
