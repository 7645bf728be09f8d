"""A client by hand: requests that interleave, stop half-way or ask for nonsense, which `bench.client` never sends."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from decodebench.bench.activity import read_activity
from decodebench.bench.client import (
    Answer,
    CohortRequest,
    completion_fields,
    said_by_connector,
    session_of,
)
from decodebench.bench.outcome import Outcome
from decodebench.bench.window_plan import WindowPlan
from tests.e2e.servers import Running

T = TypeVar("T")

CASE_TIMEOUT_S = 240.0
POLL_S = 0.05


@dataclass(frozen=True)
class Reply:
    """One HTTP answer of the completions API."""

    status: int
    body: dict[str, Any]

    @property
    def said(self) -> dict[str, Any]:
        """What the connector says in it."""
        return dict(said_by_connector(self.body))

    @property
    def text(self) -> str:
        return self.body["choices"][0]["text"]

    @property
    def prompt_tokens(self) -> int:
        return self.body["usage"]["prompt_tokens"]

    @property
    def output_tokens(self) -> int:
        return self.body["usage"]["completion_tokens"]


class Api:
    """The API of one server, within one case."""

    def __init__(self, session: aiohttp.ClientSession, running: Running) -> None:
        self._session = session
        self._running = running

    def number(self) -> int:
        """One that no other case has."""
        return self._running.numbers()

    async def complete(
        self,
        prompt: list[int] | int | list[list[int]],
        max_tokens: int,
        asked: Any = None,
        rank: int | None = None,
        **fields: Any,
    ) -> Reply:
        """Send a completion; `prompt` may be a length, `asked` is what goes under our key. None leaves a field out.

        `rank`: the data-parallel rank that is to answer.
        """
        number = self._running.numbers()
        body = completion_fields(self._running.target.model, max_tokens, f"e2e-{number}", asked or {})
        body["prompt"] = self._running.prompt(prompt) if isinstance(prompt, int) else prompt
        if asked is None:
            del body["kv_transfer_params"]
        body = {name: value for name, value in (body | fields).items() if value is not None}
        return await self.post(body, rank=rank)

    async def post(self, body: Any, path: str = "/v1/completions", rank: int | None = None) -> Reply:
        kind = {"json": body} if not isinstance(body, bytes) else {"data": body}
        headers = {"Content-Type": "application/json"}
        if rank is not None:
            headers["X-data-parallel-rank"] = str(rank)
        async with self._session.post(path, headers=headers, **kind) as response:
            return Reply(response.status, await response.json(content_type=None))

    def cohort(
        self, name: str, size: int, length: int, max_tokens: int, send: int | None = None, **fields: Any
    ) -> list[asyncio.Task[Reply]]:
        """Send the members of a cohort, or `send` of them; each task is one member's connection."""
        timeout_s = fields.pop("timeout_s", 200)
        asked = {"cohort": {"id": name, "size": size, "timeout_s": timeout_s}}
        return [
            asyncio.create_task(self.complete(length, max_tokens, asked, **fields))
            for _ in range(size if send is None else send)
        ]

    async def stream(self, body: dict[str, Any], path: str) -> list[str]:
        """The events of a streamed answer, `data: ` left off."""
        async with self._session.post(path, json=body | {"stream": True}) as response:
            assert response.status == 200, await response.text()
            text = await response.text()
        return re.findall(r"^data: (.*)$", text, re.MULTILINE)

    async def metric(self, name: str) -> float:
        """A counter of the server, summed over its labels."""
        async with self._session.get("/metrics") as response:
            text = await response.text()
        return sum(
            float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        )

    async def until_running(self, requests: int) -> None:
        """Wait until the engine decodes at least so many requests."""
        while (await self._activity()).running < requests:
            await asyncio.sleep(POLL_S)

    async def until_waiting(self, requests: int) -> None:
        while (await self._activity()).waiting < requests:
            await asyncio.sleep(POLL_S)

    async def until_idle(self) -> None:
        while (now := await self._activity()).running or now.waiting:
            await asyncio.sleep(POLL_S)

    async def _activity(self):
        async with self._session.get("/metrics") as response:
            return read_activity(await response.text())


def talk(running: Running, case: Callable[[Api], Awaitable[T]]) -> T:
    """Run one conversation with a server; fails when it takes too long."""

    async def conversation() -> T:
        async with session_of(running.target, None) as session:
            return await asyncio.wait_for(case(Api(session, running)), CASE_TIMEOUT_S)

    return asyncio.run(conversation())


def judge(running: Running, plan: WindowPlan, size: int, replies: Sequence[Reply]) -> Outcome:
    """What `decodebench run` would make of the answers to a cohort of one rank."""
    cohort = CohortRequest("by hand", size, 1, plan, 0)
    answers = [Answer(0, reply.prompt_tokens, reply.output_tokens, reply.said) for reply in replies]
    return Outcome.of(0, cohort, answers, running.engine.limits, running.engine.filled_groups)
