"""From the answers of a cohort to a judged repeat.

What the step log cannot show is checked here first: that every member got the tokens it was to get, that the connector
has nothing to complain about, that all pages were written as the plan of the blocks says, and that nothing came from
the prefix cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from decodebench.bench.audit import audit_of
from decodebench.bench.client import Answer, CohortRequest
from decodebench.bench.judged import JudgedRepeat, RankLog
from decodebench.connector.limits import Limits
from decodebench.kv.blocks import blocks_filled
from decodebench.results.audit import AuditProof
from decodebench.results.point import RepeatDetail
from decodebench.results.status import Status


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A cohort's judged steps, the proofs of its fill, and what was wrong outside the step log (None: nothing)."""

    judged: JudgedRepeat
    filled: dict[str, JsonValue]
    audit: AuditProof | None  # of an audited cohort
    fault: str | None

    @classmethod
    def of(
        cls,
        launch: int,
        cohort: CohortRequest,
        answers: Sequence[Answer],
        limits: Limits,
        filled_groups: Sequence[bool],
    ) -> "Outcome":
        planned = planned_pages(cohort, limits, filled_groups)
        states = [answer.said["cohort"] for answer in answers if _is_state(answer.said.get("cohort"))]
        logs = tuple(
            RankLog(answer.said["steps"], answer.said["cohort"]["released_step"], answer.rank)
            for answer in answers
            if "steps" in answer.said and _is_state(answer.said.get("cohort"))
        )
        judged = JudgedRepeat.of(
            launch, logs, cohort.plan, batch=cohort.size, drafts=limits.num_drafts, prefilled=cohort.prefill
        )
        written = [state["pages"] for state in states]
        filled: dict[str, JsonValue] = {
            "workers": states[0]["workers"] if states else 0,
            "pages_planned": list(planned),
            "pages_written": list(written[0]) if written else [],
        }
        if cohort.donors is not None:
            copied = [answer.said.get("donor_pages") for answer in answers if answer.rank == 0]
            known = [each for each in copied if isinstance(each, list)]
            filled["donor_pages"] = [sum(group) for group in zip(*known, strict=True)]
        audit = audit_of(answers, len(limits.shapes)) if cohort.audit else None
        return cls(
            judged,
            filled,
            audit,
            _fault(cohort, answers, states, planned)
            or _not_from_donors(cohort, answers, limits, filled_groups)
            or _not_proved(cohort, audit),
        )

    def detail(self, repeat: int, *, discarded: bool) -> RepeatDetail:
        """The record of the cohort, number `repeat` of its point and launch."""
        found = self.judged.detail(repeat, discarded=discarded, filled=self.filled, audit=self.audit)
        if self.fault is None:
            return found
        return found.model_copy(update={"status": Status.INVALID, "reason": self.fault, "rule": None})


def planned_pages(cohort: CohortRequest, limits: Limits, filled_groups: Sequence[bool]) -> tuple[int, ...]:
    """Blocks per group that the fills of one rank's members must write: all but the last prompt token of each."""
    if cohort.prefill:
        return ()
    tokens = cohort.plan.prompt_len - 1
    return tuple(
        cohort.size * blocks_filled(shape, tokens) if filled else 0
        for shape, filled in zip(limits.shapes, filled_groups, strict=True)
    )


def _fault(
    cohort: CohortRequest, answers: Sequence[Answer], states: Sequence[Any], planned: tuple[int, ...]
) -> str | None:
    for answer in answers:
        if "error" in answer.said:
            return str(answer.said["error"])
    if len(states) < len(answers):
        return f"{len(answers) - len(states)} of {len(answers)} answers came without the connector's report"
    expected = (cohort.plan.prompt_len, cohort.plan.max_tokens)
    for answer in answers:
        if (answer.prompt_tokens, answer.completion_tokens) != expected:
            return (
                f"the server counted {answer.prompt_tokens} prompt and {answer.completion_tokens} output tokens, "
                f"the plan says {expected[0]} and {expected[1]}"
            )
    for state in states:
        if state["aborted"]:
            return f"{state['aborted']} of {cohort.size} members were aborted after the release"
        if state["local_tokens"] and not cohort.prefill:
            return f"{state['local_tokens']} prompt tokens came from the prefix cache instead of the fill"
        if tuple(state["pages"]) != planned:
            return f"the fill wrote {state['pages']} pages per group, the plan says {list(planned)}"
    ranks = {answer.rank for answer in answers if "steps" in answer.said}
    if len(ranks) < cohort.ranks:
        return f"{cohort.ranks - len(ranks)} of {cohort.ranks} ranks sent no step log"
    return None


def _not_from_donors(
    cohort: CohortRequest, answers: Sequence[Answer], limits: Limits, filled_groups: Sequence[bool]
) -> str | None:
    """What is wrong where every page must come from a donor: all of them, but for rings, which may be left empty."""
    if cohort.donors is None:
        return None
    tokens = cohort.plan.prompt_len - 1
    expected = [
        blocks_filled(shape, tokens) if filled and shape.kind != "circular_buffer" else None
        for shape, filled in zip(limits.shapes, filled_groups, strict=True)
    ]
    for answer in answers:
        copied = answer.said.get("donor_pages")
        if not isinstance(copied, list) or len(copied) != len(expected):
            return "the connector did not say that a member was filled from donors"
        for group, (found, planned) in enumerate(zip(copied, expected, strict=True)):
            if planned is not None and found != planned:
                return f"a member got {found} pages of group {group} from donors, the plan says {planned}"
    return None


def _not_proved(cohort: CohortRequest, audit: AuditProof | None) -> str | None:
    """What is wrong where every page was to be audited."""
    if not cohort.audit:
        return None
    return "the connector sent no audit of the fill" if audit is None else audit.fault


_STATE = {"released_step": int, "pages": list, "workers": int, "local_tokens": int, "aborted": int}


def _is_state(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in _STATE.items())
