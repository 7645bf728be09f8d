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

import aiohttp

from decodebench.bench.alive import require_alive
from decodebench.bench.client import (
    RequestFailed,
    Target,
    completion_fields,
    describe_ranks,
    post,
    said_by_connector,
    session_of,
)
from decodebench.bench.donor_prompts import Text, Unreadable, random_ids, text_ids
from decodebench.bench.donor_set import DonorOptions, DonorSet
from decodebench.bench.facts import EngineFacts
from decodebench.bench.prompts import PromptSource
from decodebench.bench.tokenizer import token_ids
from decodebench.connector.params import MAX_DONORS
from decodebench.errors import EngineFailed, UserError
from decodebench.results.donors import DonorPhase

AT_ONCE = 8
"""Donors on their way at a time: enough to fill prefill batches, and no burst."""
COPY_TIMEOUT_S = 120.0
POLL_S = 0.1


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
    text: Text | None,
    batch: int,
    longest: int,
    seed: int,
    launch: int,
    name: str,
    check: Callable[[], None],
) -> Prefilled:
    """Make the donors for batches of up to `batch` requests of up to `longest` tokens.

    `text`: what they read; None: random ids. `name` goes before their ids and is their cache salt. Raises
    `EngineFailed`, and `UserError` for what the server cannot do as it was asked.
    """
    _require_banks(target, facts)
    length = options.length_on(facts, longest)
    job = _Job(target, facts, options.count, text, length, seed, name, batch)
    try:
        return _all_or_none(job, launch)
    except RequestFailed as error:
        require_alive(target.base_url, check)
        raise EngineFailed("the donors of the fill could not be prefilled", str(error)) from None
    except Unreadable as error:
        raise UserError(
            f"--donor-text: the server's tokenizer cannot read it: {error}",
            "give a text in words that it knows, or leave --donor-text out",
        ) from None


def _require_banks(target: Target, facts: EngineFacts) -> None:
    banks = [rank.get("donor_bank") for rank in facts.ranks]
    if all(bank is not None and bank["limit_bytes"] > 0 for bank in banks):
        return
    version = facts.first["connector"]["version"]
    why = "its donor_bank_gib is 0" if None not in banks else f"its version {version} keeps none"
    raise UserError(
        f"--fill donor (the default): the connector of the server at {target.base_url} cannot hold donors: {why}",
        "run with --fill constant or --fill normal, or start the server with `decodebench serve` of this version",
    )


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


@dataclass(slots=True, eq=False)
class _Job:
    target: Target
    facts: EngineFacts
    wanted: int | None  # donors; None: one a request, as far as the bank goes
    text: Text | None
    length: int
    seed: int
    name: str
    batch: int
    made: dict[str, None] = field(default_factory=dict)  # ids, on any rank

    async def run(self, launch: int) -> Prefilled:
        async with session_of(self.target) as session:
            begun = time.monotonic_ns()
            num_bytes = await self._donor(session, 0, 0)
            count = self._count(num_bytes)
            limit = asyncio.Semaphore(AT_ONCE)

            async def one(rank: int, number: int) -> None:
                async with limit:
                    await self._donor(session, rank, number)

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
                "source": "random ids" if self.text is None else self.text.name,
                "tokens": count * len(ranks) * self.length,
                "duration_ns": time.monotonic_ns() - begun,
                "bank_bytes": used,
                "one_a_request": count >= self.batch,
            }
        )
        return Prefilled(DonorSet(ids, self.length), phase)

    def _id(self, number: int) -> str:
        return f"{self.name}/{number}"

    async def _tokens(self, session: aiohttp.ClientSession, number: int) -> list[int]:
        if self.text is None:
            return random_ids(PromptSource.for_engine(self.seed, self.facts), number, self.length)
        return await text_ids(
            self.text, self.seed, number, self.length, lambda words: token_ids(session, self.target, words)
        )

    async def _donor(self, session: aiohttp.ClientSession, rank: int, number: int) -> int:
        """Prefill a donor; the bytes it takes of a worker."""
        fields = completion_fields(
            self.target.model, 1, f"{self.name}-donors", {"donor": {"id": self._id(number)}}
        )
        prompt = await self._tokens(session, number)
        headers = self.target.headers_for(rank, len(self.facts.ranks))
        answer = await post(session, headers, None, fields | {"prompt": prompt})
        said = said_by_connector(answer)
        if "donor" not in said:
            if "error" in said:  # it answers, and says why not
                raise UserError(
                    f"--fill donor: the server refused a donor of {self.length} tokens: {said['error']}",
                    "shorten donors (--donor-len), or give the bank more room; --fill constant needs none",
                )
            raise RequestFailed("the connector says nothing of the donor")
        self.made[self._id(number)] = None
        return int(said["donor"]["bytes"])

    def _count(self, num_bytes: int) -> int:
        """How many donors to make, where each takes `num_bytes` of a worker's bank."""
        banks = [rank["donor_bank"] for rank in self.facts.ranks]
        room = min(bank["limit_bytes"] - bank["used_bytes"] for bank in banks)
        affordable = room // num_bytes if num_bytes else MAX_DONORS
        wanted = self.wanted or self.batch
        if self.wanted is not None and affordable < wanted:
            raise UserError(
                f"--donors {wanted}: the bank of a worker has room for {affordable} (a donor of {self.length} tokens "
                f"takes {num_bytes:,} bytes, {room:,} are free)",
                f"ask for at most {affordable} donors, or for shorter ones (--donor-len)",
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


async def _forget(target: Target, donors: DonorSet, ranks: int) -> None:
    async with session_of(target) as session:
        for rank in range(ranks):
            fields = completion_fields(
                target.model, 1, "decodebench-info", {"fill": False, "forget": list(donors.ids)}
            )
            await post(session, target.headers_for(rank, ranks), None, fields | {"prompt": [1, 2]})
