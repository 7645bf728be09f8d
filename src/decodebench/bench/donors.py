"""Donors of a run: really prefilled once per server start and data-parallel rank, then the content of every fill.

How many matters more than how long: requests filled from one donor look alike to a router of experts, and their steps
are too fast. So there is one donor for every request of the largest batch, as far as the workers' banks hold them; with
fewer, each request takes every page from a donor drawn for it. What a donor takes is read from the first one's answer,
not computed here.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from decodebench.bench.alive import require_alive
from decodebench.bench.client import (
    INFO_TIMEOUT_S,
    RequestFailed,
    Target,
    completion_fields,
    describe_ranks,
    said_by_connector,
)
from decodebench.bench.client import post as post_to
from decodebench.bench.donor_prompts import Text, Unreadable, random_ids, text_ids
from decodebench.bench.facts import EngineFacts
from decodebench.bench.prompts import PromptSource
from decodebench.connector.params import MAX_DONORS
from decodebench.errors import EngineFailed
from decodebench.kv.arithmetic import ceil_div
from decodebench.results.donors import DonorPhase

LENGTH = 2048
"""Tokens of a donor unless another number is asked for."""
AT_ONCE = 8
"""Donors on their way at a time: enough to fill prefill batches, and no burst."""
COPY_TIMEOUT_S = 120.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class DonorOptions:
    """What was asked of the donors."""

    count: int | None = None  # None: one for every request of the largest batch, as far as the bank goes
    length: int | None = None  # tokens; None: LENGTH, or what the model's window needs
    text: Text | None = None  # None: random ids for random weights, the shipped text for real ones

    def length_on(self, facts: EngineFacts, longest: int) -> int:
        """Tokens of each donor, where the longest prompt to fill has `longest`. Raises `EngineFailed`."""
        most = facts.limits.max_model_len - 1  # a donor's request puts out one token
        least = min(facts.first["donor_bank"]["min_tokens"], longest)
        length = min(max(LENGTH, least), most) if self.length is None else self.length
        if not least <= length <= most:
            raise EngineFailed(
                f"--donor-len {length}: this model takes donors of {least} to {most} tokens",
                "the longest window must be full, and the prompt must leave room for a token in max_model_len",
            )
        return length


@dataclass(frozen=True, slots=True)
class DonorSet:
    """The donors that a server holds, on each of its data-parallel ranks."""

    ids: tuple[str, ...]
    length: int  # tokens of each

    def asked(self, first: int, member: int, batch: int, tokens: int) -> dict[str, Any]:
        """What a request of `tokens` prompt tokens asks of the connector, as number `member` of a batch.

        `first`: number of the batch's first prompt, so that a repeat starts with other donors.
        """
        count = len(self.ids)
        named = count if count < batch else min(count, ceil_div(tokens, self.length))
        chosen = [self.ids[(first + member + i) % count] for i in range(named)]
        return {"donors": chosen, "seed": first + member}


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The donors, and what they cost."""

    donors: DonorSet
    phase: DonorPhase


def prefill_donors(
    target: Target,
    facts: EngineFacts,
    options: DonorOptions,
    *,
    batch: int,
    longest: int,
    seed: int,
    launch: int,
    name: str,
    has_real_weights: bool,
    check: Callable[[], None],
) -> Prefilled:
    """Make the donors for batches of up to `batch` requests of up to `longest` tokens.

    `name` goes before their ids and is their cache salt. Raises `EngineFailed`.
    """
    length = options.length_on(facts, longest)
    job = _Job(target, facts, options, length, seed, name, batch, has_real_weights)
    try:
        return _all_or_none(job, launch)
    except RequestFailed as error:
        require_alive(target.base_url, check)
        raise EngineFailed("the donors of the fill could not be prefilled", str(error)) from None
    except Unreadable as error:
        raise EngineFailed("--donor-text: the server's tokenizer cannot read it", str(error)) from None


def _all_or_none(job: "_Job", launch: int) -> Prefilled:
    """A server that goes on without us keeps none of the donors of a job that failed."""
    try:
        return asyncio.run(job.run(launch))
    except BaseException:
        if job.made:
            with suppress(RequestFailed):
                forget_donors(job.target, DonorSet(tuple(job.made), job.length), len(job.facts.ranks))
        raise


def forget_donors(target: Target, donors: DonorSet, ranks: int) -> None:
    """Free the banks of a server that goes on running without us."""
    asyncio.run(_forget(target, donors, ranks))


def tokenised(target: Target, text: Text) -> tuple[tuple[int, ...], ...]:
    """The token ids of every paragraph, by the server's tokenizer. Raises `EngineFailed`."""

    async def ask() -> list[list[int]]:
        async with _session(target) as session:
            return [await _token_ids(session, target, part + "\n\n") for part in text.paragraphs]

    try:
        return tuple(tuple(ids) for ids in asyncio.run(ask()))
    except RequestFailed as error:
        raise EngineFailed("the server did not tokenise a text", str(error)) from None


@dataclass(slots=True, eq=False)
class _Job:
    target: Target
    facts: EngineFacts
    options: DonorOptions
    length: int
    seed: int
    name: str
    batch: int
    has_real_weights: bool
    source: str = "random ids"
    made: dict[str, None] = field(default_factory=dict)  # ids, on any rank

    async def run(self, launch: int) -> Prefilled:
        text = self.options.text
        async with _session(self.target) as session:
            if text is not None:
                self.source = text.name
            elif self.has_real_weights and await self._reads(session, Text.shipped()):
                text, self.source = Text.shipped(), "shipped text"
            begun = time.monotonic_ns()
            num_bytes = await self._donor(session, text, 0, 0)
            count = self._count(num_bytes)
            limit = asyncio.Semaphore(AT_ONCE)

            async def one(rank: int, number: int) -> None:
                async with limit:
                    await self._donor(session, text, rank, number)

            ranks = range(len(self.facts.ranks))
            rest = [(rank, number) for rank in ranks for number in range(count) if (rank, number) != (0, 0)]
            await asyncio.gather(*(one(*each) for each in rest))
        ids = tuple(self._id(number) for number in range(count))
        used = await asyncio.to_thread(self._until_held, ids)
        phase = DonorPhase.model_validate(
            {
                "launch": launch,
                "donors": count,
                "donor_len": self.length,
                "seed": self.seed,
                "source": self.source,
                "tokens": count * len(ranks) * self.length,
                "duration_ns": time.monotonic_ns() - begun,
                "bank_bytes": used,
                "one_a_request": count >= self.batch,
            }
        )
        return Prefilled(DonorSet(ids, self.length), phase)

    def _id(self, number: int) -> str:
        return f"{self.name}/{number}"

    async def _reads(self, session: aiohttp.ClientSession, text: Text) -> bool:
        """Whether the tokenizer knows the text; that of a built-in model behind --url does not."""
        try:
            await self._tokens(session, text, 0)
        except Unreadable:
            return False
        return True

    async def _tokens(self, session: aiohttp.ClientSession, text: Text | None, number: int) -> list[int]:
        if text is None:
            first = self.facts.first
            source = PromptSource.of(self.seed, first["vocab_size"], first["special_token_ids"])
            return random_ids(source, number, self.length)

        async def tokenize(words: str) -> list[int]:
            return await _token_ids(session, self.target, words)

        return await text_ids(text, self.seed, number, self.length, tokenize)

    async def _donor(self, session: aiohttp.ClientSession, text: Text | None, rank: int, number: int) -> int:
        """Prefill a donor; the bytes it takes of a worker."""
        fields = completion_fields(
            self.target.model, 1, f"{self.name}-donors", {"donor": {"id": self._id(number)}}
        )
        prompt = await self._tokens(session, text, number)
        answer = await post_to(
            session, _headers(self.target, self.facts, rank), None, fields | {"prompt": prompt}
        )
        said = said_by_connector(answer)
        if "donor" not in said:
            raise RequestFailed(str(said.get("error", "the connector says nothing of the donor")))
        self.made[self._id(number)] = None
        return int(said["donor"]["bytes"])

    def _count(self, num_bytes: int) -> int:
        """How many donors to make, where each takes `num_bytes` of a worker's bank."""
        banks = [rank["donor_bank"] for rank in self.facts.ranks]
        room = min(bank["limit_bytes"] - bank["used_bytes"] for bank in banks)
        affordable = room // num_bytes if num_bytes else MAX_DONORS
        wanted = self.options.count or self.batch
        if self.options.count is not None and affordable < wanted:
            raise EngineFailed(
                f"--donors {wanted}: the bank of a worker has room for {affordable}",
                f"a donor of {self.length} tokens takes {num_bytes:,} bytes, {room:,} are free; ask for fewer or"
                " shorter donors",
            )
        return max(1, min(wanted, affordable, MAX_DONORS))

    def _until_held(self, ids: Iterable[str]) -> int:
        """Wait until every worker has copied every donor; the bytes that a worker's bank then holds."""
        deadline = time.monotonic() + COPY_TIMEOUT_S
        while True:
            banks = [rank["donor_bank"] for rank in describe_ranks(self.target)]
            missing = [each for each in ids for bank in banks if each not in bank["donors"]]
            if not missing:
                return max(int(bank["used_bytes"]) for bank in banks)
            if time.monotonic() > deadline:
                raise EngineFailed(
                    f"{len(missing)} donors were not copied within {COPY_TIMEOUT_S:g} s",
                    f"first {missing[0]}",
                )
            time.sleep(POLL_S)


async def _token_ids(session: aiohttp.ClientSession, target: Target, text: str) -> list[int]:
    asked = {"model": target.model, "prompt": text, "add_special_tokens": False}
    answer = await post_to(session, target.headers, None, asked, path="/tokenize")
    return list(answer["tokens"])


def _session(target: Target) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        target.base_url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=INFO_TIMEOUT_S),
    )


def _headers(target: Target, facts: EngineFacts, rank: int) -> dict[str, str]:
    return target.headers | ({"X-data-parallel-rank": str(rank)} if len(facts.ranks) > 1 else {})


async def _forget(target: Target, donors: DonorSet, ranks: int) -> None:
    async with _session(target) as session:
        for rank in range(ranks):
            fields = completion_fields(
                target.model, 1, "decodebench-info", {"fill": False, "forget": list(donors.ids)}
            )
            headers = target.headers | ({"X-data-parallel-rank": str(rank)} if ranks > 1 else {})
            await post_to(session, headers, None, fields | {"prompt": [1, 2]})
