"""Talks to a server: asks what it is, and sends it cohorts.

A cohort of B requests per data-parallel rank goes out as B x ranks completion requests with streamed bodies; the
answers are not streamed, since only those carry what the connector returns. The client's clock measures nothing: it
only notices when nothing happens any more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp

from decodebench.bench.activity import Activity, read_activity
from decodebench.bench.alive import require_alive
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.params import DEFAULT_TIMEOUT_S, KEY
from decodebench.errors import EngineFailed

if TYPE_CHECKING:
    from decodebench.bench.donor_set import DonorSet

POLL_S = 5.0
"""How often the server's counters are read while a cohort runs: rarely, since its API server shares the machine."""
INFO_TIMEOUT_S = 600.0  # a first request may compile kernels
STALL_TIMEOUT_S = 300.0
RANK_HEADER = "X-data-parallel-rank"


class Prompts(Protocol):
    """Draws the prompts of one run, each by its number."""

    def body(self, number: int, length: int, fields: Mapping[str, Any]) -> Iterator[bytes]: ...


class RequestFailed(Exception):
    """The server refused or dropped a request; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how to reach the server that is measured."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def headers_for(self, rank: int, ranks: int) -> dict[str, str]:
        """Those of a request to one of the server's data-parallel ranks."""
        return self.headers | ({RANK_HEADER: str(rank)} if ranks > 1 else {})


@dataclass(frozen=True, slots=True)
class CohortRequest:
    """One cohort to send: `size` members on each of `ranks` data-parallel ranks."""

    name: str
    size: int
    ranks: int
    plan: WindowPlan
    first_prompt: int  # number of its first prompt in the run
    timeout_s: float = DEFAULT_TIMEOUT_S  # from the first member's arrival to the release
    stall_timeout_s: float = STALL_TIMEOUT_S
    donors: "DonorSet | None" = None  # what fills the members; None: the server's numbers
    prefill: bool = False  # members are really prefilled
    with_tokens: bool = False  # answers bring their token ids, and their experts where known
    audit: bool = False  # the workers prove what their fill wrote


@dataclass(frozen=True, slots=True)
class Answer:
    """One member's response: the tokens the server counted, and what the connector said."""

    rank: int
    prompt_tokens: int
    completion_tokens: int
    said: Mapping[str, Any]
    tokens: tuple[int, ...] = ()
    experts: str = ""  # base64, see routed_experts.py


class Client:
    """Sends the requests of one run.

    Args:
        target: the server.
        source: draws the prompts.
        salt: cache salt of every request of the run, so that nothing else hits its blocks.
        check: raises `EngineFailed` if the server has died; called while waiting.
        on_activity: hears the server's counters while a cohort waits.
    """

    def __init__(
        self,
        target: Target,
        source: Prompts,
        salt: str,
        check: Callable[[], None],
        on_activity: Callable[[Activity], None],
    ) -> None:
        self._target = target
        self._source = source
        self._salt = salt
        self._check = check
        self._on_activity = on_activity

    def send(self, cohort: CohortRequest) -> list[Answer]:
        """Send a cohort and wait for all its answers.

        Raises `RequestFailed` when a request failed or nothing happened for `stall_timeout_s`, `EngineFailed` when the
        server died.
        """
        try:
            return asyncio.run(self._send(cohort))
        except RequestFailed:
            require_alive(self._target.base_url, self._check)
            raise

    async def _send(self, cohort: CohortRequest) -> list[Answer]:
        async with session_of(self._target, None) as session:
            members = asyncio.gather(
                *(
                    self._member(session, cohort, rank, member)
                    for rank in range(cohort.ranks)
                    for member in range(cohort.size)
                )
            )
            watcher = asyncio.create_task(self._watch(session, cohort.stall_timeout_s))
            try:
                either: tuple[asyncio.Future[Any], ...] = (members, watcher)
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not members.done():
                    watcher.result()  # it ends only by raising
                return members.result()
            finally:
                # Closing the connections of what is left makes the server abort it.
                members.cancel()
                watcher.cancel()
                await asyncio.gather(members, watcher, return_exceptions=True)

    async def _member(
        self, session: aiohttp.ClientSession, cohort: CohortRequest, rank: int, member: int
    ) -> Answer:
        first = cohort.first_prompt + rank * cohort.size
        number = first + member
        line = {"id": f"{cohort.name}/{rank}", "size": cohort.size, "timeout_s": cohort.timeout_s}
        asked: dict[str, Any] = {"cohort": line | ({"prefill": True} if cohort.prefill else {})}
        if cohort.donors is not None:
            asked |= cohort.donors.asked(first, member, cohort.size, cohort.plan.prompt_len)
        if cohort.audit:
            asked["audit"] = True
        fields = completion_fields(self._target.model, cohort.plan.max_tokens, self._salt, asked)
        if cohort.with_tokens:
            fields["return_token_ids"] = True
            fields["routed_experts_prompt_start"] = cohort.plan.prompt_len - 1
        body = self._source.body(number, cohort.plan.prompt_len, fields)
        headers = self._target.headers_for(rank, cohort.ranks) | {"Content-Type": "application/json"}
        answer = await post(session, headers, _pieces(body))
        usage, choice = answer.get("usage") or {}, answer["choices"][0]
        return Answer(
            rank=rank,
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", 0),
            said=said_by_connector(answer),
            tokens=tuple(choice.get("token_ids") or ()) if cohort.with_tokens else (),
            experts=choice.get("routed_experts") or "",
        )

    async def _watch(self, session: aiohttp.ClientSession, stall_timeout_s: float) -> None:
        """Fail the cohort when the server has died or its counters have stood still for too long."""
        last: Activity | None = None
        since = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            self._check()
            now = await _activity(session, self._target)
            if now != last:
                last, since = now, time.monotonic()
            if now is not None:
                self._on_activity(now)
            if time.monotonic() - since > stall_timeout_s:
                doing = str(last) if last is not None else "it does not answer /metrics"
                raise RequestFailed(
                    f"stuck: nothing changed on the server for {stall_timeout_s:g} s ({doing})"
                )


def session_of(target: Target, timeout_s: float | None = INFO_TIMEOUT_S) -> aiohttp.ClientSession:
    """A connection for every request. A request may take `timeout_s`, by default as long as a first one does.

    NOTE: the server closes a connection that was idle for some seconds (vLLM's default: 5), and a request that is sent
    on it just then is lost.
    """
    return aiohttp.ClientSession(
        target.base_url,
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
    )


def describe_ranks(target: Target) -> list[Mapping[str, Any]]:
    """What every data-parallel rank says of itself; empty if the server does not run our connector.

    Raises `EngineFailed` if the server refuses or does not answer.
    """
    return asyncio.run(_describe_ranks(target))


async def _describe_ranks(target: Target) -> list[Mapping[str, Any]]:
    async with session_of(target) as session:
        ranks: list[Mapping[str, Any]] = []
        # NOTE: the ranks of a dense model are engines of their own, each of which takes itself for the only one (vLLM
        # 0.32, `reconfigure_for_independent_dp_rank`). So the server is asked until it knows no further rank.
        while (facts := await _describe(session, target, len(ranks))) is not None:
            ranks.append(facts)
        return ranks


async def _describe(session: aiohttp.ClientSession, target: Target, rank: int) -> Mapping[str, Any] | None:
    """What one rank says of itself, or None if there is no such rank, or it does not run our connector."""
    # Two tokens: the answer knows what workers reported in steps before its last.
    fields = completion_fields(target.model, 2, "decodebench-info", {"fill": False, "info": True})
    headers = target.headers | {RANK_HEADER: str(rank)}
    try:
        answer = await post(session, headers, None, fields | {"prompt": [1, 2]})
    except RequestFailed as error:
        if rank > 0 and "is out of range" in str(error):
            return None
        raise EngineFailed(f"the server at {target.base_url} did not describe itself", str(error)) from None
    info = said_by_connector(answer).get("info")
    if not isinstance(info, dict):
        return None
    if rank > 0 and info["data_parallel_rank"] != rank:
        return None  # something before the server takes the header away
    return info


def completion_fields(model: str, max_tokens: int, salt: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A completion request that decodes exactly `max_tokens` tokens, without its prompt."""
    return {
        "model": model,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "cache_salt": salt,
        "kv_transfer_params": {KEY: dict(asked)},
    }


def said_by_connector(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    params = answer.get("kv_transfer_params")
    said = params.get(KEY) if isinstance(params, dict) else None
    return said if isinstance(said, dict) else {}


async def post(
    session: aiohttp.ClientSession,
    headers: Mapping[str, str],
    pieces: AsyncIterator[bytes] | None,
    json: Mapping[str, Any] | None = None,
    path: str = "/v1/completions",
) -> dict[str, Any]:
    """The server's answer. Raises `RequestFailed`."""
    try:
        async with session.post(path, headers=headers, data=pieces, json=json) as response:
            if response.status == 200:
                answer: dict[str, Any] = await response.json()
                return answer
            text = " ".join((await response.text()).split())[:500]
            raise RequestFailed(f"the server answered HTTP {response.status}: {text}")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise RequestFailed(f"the connection failed: {type(error).__name__}: {error}") from None


async def _pieces(body: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in body:
        yield piece


async def _activity(session: aiohttp.ClientSession, target: Target) -> Activity | None:
    try:
        async with session.get(
            "/metrics", headers=target.headers, timeout=aiohttp.ClientTimeout(total=POLL_S)
        ) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError):
        return None
    return read_activity(text)
