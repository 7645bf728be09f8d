"""The start line: requests of a cohort wait until all have arrived, fill together, and are released in one step.

Pure Python and free of vLLM: time and room are passed in. The rules it keeps:

- Nothing is admitted before the whole cohort is there: a member answered "ask later" holds no blocks and blocks nobody.
- One cohort at a time, from admission until its last member has left. Two half-admitted cohorts would wait for each
  other's blocks for ever, and a second cohort would join the steps of the first.
- A cohort whose members are really prefilled is admitted the same way, but its members run at once; it counts as
  released when the last of them has been admitted.
- A cohort that cannot be exact (too large, expired, a member gone) is *broken*: its members run normally, and each
  one's response says why. Failing the requests instead would lose the reason.

Life: gathering -> admitting -> released, or broken at any time before the release.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from decodebench.connector.findings import Findings
from decodebench.connector.params import CohortParams

ADMITTED_WITHOUT_FILL = (
    "cohort {!r}: the engine admitted a member without taking our fill (prompt_logprobs, a streaming-input "
    "continuation, or another connector of a MultiConnector that goes first); send plain requests and list this "
    "connector first"
)


class Phase(Enum):
    GATHERING = auto()  # some members have not arrived, or it is not this cohort's turn
    ADMITTING = auto()  # members get blocks and are filled
    RELEASED = auto()  # every member was ordered to run in one step
    BROKEN = auto()  # members run on their own


class Answer(Enum):
    WAIT = auto()  # ask later
    HOLD = auto()  # fill, then wait for the release
    RUN = auto()  # not held (any more): fill as a request without a cohort


@dataclass(slots=True)
class Cohort:
    """One start line. `members` are those that arrived and have not left, in order of arrival."""

    params: CohortParams
    deadline_ns: int
    phase: Phase = Phase.GATHERING
    members: dict[str, int] = field(default_factory=dict)  # request id -> tokens at the end of its output
    arrived: int = 0
    held: set[str] = field(default_factory=set)  # members that own blocks
    filled: set[str] = field(default_factory=set)
    local_tokens: int = 0  # prefix-cache hits of the members: 0 in a sound measurement
    pages: list[int] = field(default_factory=list)  # pages written per group, summed over members
    released_step: int | None = None
    log_taken: bool = False
    audit: Findings | None = None
    error: str | None = None
    aborted: int = 0  # members that left without finishing their output

    def note_audit(self, found: Findings) -> None:
        """What the audit of a member's fill found."""
        self.audit = self.audit or Findings()
        self.audit.merge(found)

    def note_filled(self, request_id: str, pages: tuple[int, ...]) -> None:
        """Every worker reported the member's fill: `pages` blocks per group."""
        self.filled.add(request_id)
        before = self.pages or [0] * len(pages)
        self.pages = [old + new for old, new in zip(before, pages, strict=True)]

    def take_log(self, request_id: str) -> bool:
        """Whether this member's response carries the step log: the first that finishes does, once."""
        if self.phase is not Phase.RELEASED or self.log_taken or next(iter(self.members)) != request_id:
            return False
        self.log_taken = True
        return True

    def describe(self) -> dict[str, Any]:
        """The cohort as a member's response tells it."""
        return {
            "id": self.params.id,
            "size": self.params.size,
            "released_step": self.released_step,
            "filled": len(self.filled),
            "pages": self.pages,
            "local_tokens": self.local_tokens,
            "aborted": self.aborted,
            **({"audit": self.audit.describe()} if self.audit is not None else {}),
        }

    @property
    def complete(self) -> bool:
        return self.arrived == self.params.size


class StartLine:
    """All cohorts of one scheduler.

    `misfit(tokens of each member at its end)` says why a cohort can never run as one batch, or None; `has_room(...)`
    whether the pool has the blocks for it now; `has_content(members)` whether what they are filled with exists.
    """

    def __init__(
        self,
        misfit: Callable[[list[int]], str | None],
        has_room: Callable[[list[int]], bool],
        has_content: Callable[[Iterable[str]], bool],
    ) -> None:
        self._misfit = misfit
        self._has_room = has_room
        self._has_content = has_content
        self._cohorts: dict[str, Cohort] = {}
        self._of: dict[str, Cohort] = {}  # request id -> its cohort
        self._waiting: deque[Cohort] = deque()  # complete, in the order of completion
        self.active: Cohort | None = None

    def cohort_of(self, request_id: str) -> Cohort | None:
        return self._of.get(request_id)

    def arrive(self, request_id: str, params: CohortParams, end_tokens: int, now_ns: int) -> str | None:
        """A member has come. Returns why it cannot belong to the cohort it names, or None."""
        cohort = self._cohorts.get(params.id)
        if cohort is None:
            cohort = Cohort(params, now_ns + int(params.timeout_s * 1e9))
            self._cohorts[params.id] = cohort
        elif cohort.error is not None and not cohort.complete:
            return cohort.error  # it broke while this member was on its way
        elif cohort.complete:  # whatever comes now must not break what runs
            return (
                f"cohort {params.id!r} of {cohort.params.size} is already complete or over; "
                "give each cohort its own id"
            )
        elif params.size != cohort.params.size:
            reason = (
                f"cohort {params.id!r}: one member names size {cohort.params.size}, another {params.size}"
            )
            self.fail(cohort, reason)
            return reason
        elif params.prefill != cohort.params.prefill:
            reason = f"cohort {params.id!r}: some members ask to be prefilled, some to be filled"
            self.fail(cohort, reason)
            return reason
        cohort.members[request_id] = end_tokens
        cohort.arrived += 1
        self._of[request_id] = cohort
        if cohort.complete:
            self._waiting.append(cohort)
        return None

    def answer(self, request_id: str, external_tokens: int) -> Answer:
        """What to say when the engine asks for a member's external tokens."""
        cohort = self._of[request_id]
        if cohort.phase is Phase.GATHERING and cohort.complete:
            self._start_next()
        if cohort.phase is Phase.ADMITTING and external_tokens <= 0 and request_id not in cohort.held:
            self.fail(
                cohort,
                f"cohort {cohort.params.id!r}: a member has nothing to fill (a prompt of one token, or its whole "
                "prompt hit the prefix cache), so it cannot be held; use longer prompts with a cache_salt of their own",
            )
        if cohort.phase is Phase.GATHERING:
            return Answer.WAIT
        return Answer.HOLD if cohort.phase is Phase.ADMITTING else Answer.RUN

    def hold(self, request_id: str, local_tokens: int) -> None:
        """The engine gave a member its blocks."""
        cohort = self._of[request_id]
        cohort.held.add(request_id)
        cohort.local_tokens += local_tokens

    def run_prefill(self, request_id: str, local_tokens: int) -> None:
        """The engine gave a member that is really prefilled its blocks: it runs from this step on."""
        self.hold(request_id, local_tokens)
        self._of[request_id].filled.add(request_id)

    @property
    def prefilling(self) -> bool:
        """Whether members of the active cohort are really prefilled, and not all admitted yet."""
        cohort = self.active
        return cohort is not None and cohort.params.prefill and cohort.phase is Phase.ADMITTING

    def take_release(self, step: int) -> list[str]:
        """Members to release in this step: all of the active cohort once all are filled, else none."""
        cohort = self.active
        if cohort is None or cohort.phase is not Phase.ADMITTING or len(cohort.filled) < cohort.params.size:
            return []
        cohort.phase = Phase.RELEASED
        cohort.released_step = step
        return list(cohort.members)

    def leave(self, request_id: str, aborted: bool) -> None:
        """A member finished or was aborted. Leaving before the release breaks the cohort."""
        cohort = self._of.pop(request_id, None)
        if cohort is None:
            return
        del cohort.members[request_id]
        cohort.aborted += aborted
        if cohort.phase in (Phase.GATHERING, Phase.ADMITTING):
            self.fail(
                cohort,
                f"cohort {cohort.params.id!r}: a member was aborted before all {cohort.params.size} were released",
            )
        if not cohort.members:
            self._forget(cohort)

    def fail(self, cohort: Cohort, reason: str) -> None:
        """Break a cohort: its members run on their own from now on. The first reason stands."""
        if cohort.phase is Phase.BROKEN:
            return
        cohort.error = reason
        cohort.phase = Phase.BROKEN
        if cohort in self._waiting:
            self._waiting.remove(cohort)

    def expire(self, now_ns: int) -> None:
        """Break the cohorts whose time is up before their release."""
        for cohort in list(self._cohorts.values()):
            if now_ns < cohort.deadline_ns or cohort.phase not in (Phase.GATHERING, Phase.ADMITTING):
                continue
            if len(cohort.held) == cohort.params.size:
                continue  # only the workers' fill is outstanding: blocks being written cannot be handed on
            self.fail(
                cohort,
                f"cohort {cohort.params.id!r} expired after {cohort.params.timeout_s:g} s: {self._waits_for(cohort)}",
            )

    @property
    def has_expiring(self) -> bool:
        return any(cohort.phase in (Phase.GATHERING, Phase.ADMITTING) for cohort in self._cohorts.values())

    def _start_next(self) -> None:
        if self.active is not None or not self._waiting:
            return
        cohort = self._waiting[0]
        ends = list(cohort.members.values())
        if reason := self._misfit(ends):
            self.fail(cohort, f"cohort {cohort.params.id!r} does not fit: {reason}")
        elif self._has_content(cohort.members) and self._has_room(ends):
            self._waiting.popleft()
            cohort.phase = Phase.ADMITTING
            self.active = cohort

    def _forget(self, cohort: Cohort) -> None:
        del self._cohorts[cohort.params.id]
        if self.active is cohort:
            self.active = None

    def _waits_for(self, cohort: Cohort) -> str:
        if not cohort.complete:
            return f"{cohort.arrived} of {cohort.params.size} members had arrived"
        if cohort.phase is Phase.ADMITTING:
            return f"{len(cohort.held)} of {cohort.params.size} members had their blocks"
        if self.active is not None and self.active is not cohort:
            return f"cohort {self.active.params.id!r} was still admitted or decoding"
        if not self._has_content(cohort.members):
            return "donors that it is filled from were not copied yet"
        return "the pool did not have its blocks free; other requests hold them"
