"""What becomes of the audit of a cohort: read from its answers, judged, added up, checked again."""

import pytest

from decodebench.bench.audit import audit_of
from decodebench.bench.client import Answer, CohortRequest
from decodebench.bench.outcome import Outcome
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.findings import Findings
from decodebench.connector.limits import Limits
from decodebench.connector.metadata import AuditReport
from decodebench.kv.blocks import GroupShape, blocks_filled
from decodebench.results.audit import AuditProof
from decodebench.results.status import Status
from tests.bench.cohort_log import RELEASE_STEP, cohort_log

PLAN = WindowPlan.of(500, max_model_len=4096, window_steps=8)
LIMITS = Limits(
    shapes=(GroupShape("full_attention", 16), GroupShape("sliding_window", 16, 64)),
    num_blocks=1000,
    watermark_blocks=0,
    max_num_seqs=8,
    max_num_batched_tokens=8192,
    max_model_len=4096,
    num_drafts=0,
    lookahead=0,
    batches_in_flight=1,
)


def found(wrong: int = 0, changed: int = 0, disturbed: bool = False) -> dict[str, object]:
    """As the connector describes what the audit of one member found."""
    findings = Findings()
    report = AuditReport({"r": (30, 5)}, {"r": (wrong, 0)}, 200, changed, 0.25)
    findings.add(report, "r", disturbed)
    return findings.describe()


def answer(audit: dict[str, object] | None, rank: int = 0) -> Answer:
    pages = [blocks_filled(shape, PLAN.prompt_len - 1) for shape in LIMITS.shapes]
    cohort = {"released_step": RELEASE_STEP, "pages": pages, "workers": 1, "local_tokens": 0, "aborted": 0}
    if audit is not None:
        cohort["audit"] = audit
    said = {"cohort": cohort, "steps": cohort_log(PLAN, 1)}
    return Answer(rank, PLAN.prompt_len, PLAN.max_tokens, said)


def outcome(audit: dict[str, object] | None, *, asked: bool = True) -> Outcome:
    cohort = CohortRequest("c", 1, 1, PLAN, 0, audit=asked)
    return Outcome.of(0, cohort, [answer(audit)], LIMITS, (True, True))


def test_the_proof_is_kept_with_the_repeat_and_a_sound_one_does_not_spoil_it():
    detail = outcome(found()).detail(0, discarded=False)
    assert detail.status is Status.VALID, detail.reason
    assert detail.audit == AuditProof(pages=(30, 5), unowned_pages=200, duration_ns=250_000_000)


@pytest.mark.parametrize("prefill", [False, True])
def test_tokens_of_the_prefix_cache_spoil_a_fill_and_not_a_real_prefill(prefill: bool):
    """Really prefilled requests may find the KV of their own earlier prefill; filled ones must be filled."""
    cohort = CohortRequest("c", 1, 1, PLAN, 0, prefill=prefill)
    cached = answer(None)
    cached.said["cohort"]["local_tokens"] = 64
    cached.said["cohort"]["pages"] = [] if prefill else cached.said["cohort"]["pages"]
    fault = Outcome.of(0, cohort, [cached], LIMITS, (True, True)).fault
    assert fault is None if prefill else "prefix cache" in str(fault)


@pytest.mark.parametrize(
    ("audit", "reason"),
    [
        (found(wrong=2), "audit: 2 of 35 pages do not hold what was written"),
        (found(changed=3), "audit: 3 of 200 pages outside of the fill changed while it ran"),
        (None, "the connector sent no audit of the fill"),
    ],
)
def test_what_the_audit_finds_or_does_not_say_makes_the_repeat_invalid_for_that_reason(audit, reason):
    detail = outcome(audit).detail(0, discarded=False)
    assert (detail.status, detail.reason, detail.rule) == (Status.INVALID, reason, None)


def test_changes_that_may_be_of_other_requests_are_told_and_not_judged():
    detail = outcome(found(changed=3, disturbed=True)).detail(0, discarded=False)
    assert detail.status is Status.VALID
    assert detail.audit.unowned_changed is None


def test_a_run_that_does_not_ask_has_no_audit():
    detail = outcome(found(wrong=2), asked=False).detail(0, discarded=False)
    assert (detail.status, detail.audit) == (Status.VALID, None)


def test_ranks_are_added_up_and_of_each_the_member_that_knows_most_counts():
    early = found() | {"pages": [10, 0]}
    answers = [answer(early), answer(found()), answer(found(), rank=1)]
    assert audit_of(answers, 2).pages == (60, 10)
    assert audit_of([*answers, answer(None, rank=2)], 2) is None


@pytest.mark.parametrize(
    "said", [{}, {"pages": [1]}, found() | {"pages": "35"}, found() | {"seconds": None}, 7]
)
def test_an_answer_that_makes_no_sense_is_no_proof(said):
    assert audit_of([answer(said)], 2) is None


def test_a_total_knows_of_changes_only_if_all_its_parts_do():
    sound, disturbed = AuditProof(pages=(3,)), AuditProof(pages=(4,), unowned_changed=None)
    assert AuditProof.total([]) is None
    assert AuditProof.total([sound, sound]).unowned_changed == 0
    assert AuditProof.total([sound, disturbed]) == AuditProof(pages=(7,), unowned_changed=None)
