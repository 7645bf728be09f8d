"""From the answers of an audited cohort to the proof of its fill."""

from collections.abc import Iterator, Sequence
from typing import Any

from decodebench.bench.client import Answer
from decodebench.results.audit import AuditProof

_COUNTS = ("mismatches", "unowned_pages")


def audit_of(answers: Sequence[Answer], groups: int) -> AuditProof | None:
    """What the audits of all ranks found; None if one of them sent none.

    Every member tells what was found of the whole cohort until it left, so of each rank the fullest answer counts.
    """
    ranks = sorted({answer.rank for answer in answers})
    found = [max(_proofs(answers, rank, groups), key=_extent, default=None) for rank in ranks]
    proofs = [proof for proof in found if proof is not None]
    return AuditProof.total(proofs) if len(proofs) == len(ranks) else None


def _proofs(answers: Sequence[Answer], rank: int, groups: int) -> Iterator[AuditProof]:
    for answer in answers:
        cohort = answer.said.get("cohort")
        said: Any = cohort.get("audit") if answer.rank == rank and isinstance(cohort, dict) else None
        if _is_audit(said, groups):
            yield AuditProof(
                pages=tuple(said["pages"]),
                mismatches=said["mismatches"],
                unowned_pages=said["unowned_pages"],
                unowned_changed=said["unowned_changed"],
                duration_ns=round(said["seconds"] * 1e9),
            )


def _extent(proof: AuditProof) -> tuple[int, int]:
    return sum(proof.pages), proof.mismatches


def _is_audit(said: Any, groups: int) -> bool:
    return (
        isinstance(said, dict)
        and isinstance(said.get("pages"), list)
        and len(said["pages"]) == groups
        and all(isinstance(said.get(name), int) for name in _COUNTS)
        and isinstance(said.get("unowned_changed"), int | None)
        and isinstance(said.get("seconds"), int | float)
    )
