"""The scheduler's end of an audit: what the workers found, added up."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decodebench.connector.metadata import AuditReport


@dataclass(slots=True)
class Findings:
    """What audits found of one request or of all members of a cohort, added up over workers and jobs."""

    pages: list[int] = field(default_factory=list)  # per group
    wrong: list[int] = field(default_factory=list)
    unowned: int = 0
    changed: int = 0
    disturbed: bool = False  # other requests ran meanwhile, and may have written pages of theirs
    seconds: float = 0.0

    def add(self, report: AuditReport, request: str, disturbed: bool) -> None:
        """One worker's report of the job that filled `request`; its canaries are those of the whole job."""
        self.pages = _sum(self.pages, report.checked[request])
        self.wrong = _sum(self.wrong, report.wrong[request])
        self._note(report.unowned, report.changed, disturbed, report.seconds / len(report.checked))

    def merge(self, other: "Findings") -> None:
        """Another member's."""
        self.pages = _sum(self.pages, other.pages)
        self.wrong = _sum(self.wrong, other.wrong)
        self._note(other.unowned, other.changed, other.disturbed, other.seconds)

    def _note(self, unowned: int, changed: int, disturbed: bool, seconds: float) -> None:
        self.unowned, self.changed = max(self.unowned, unowned), max(self.changed, changed)
        self.disturbed |= disturbed
        self.seconds += seconds

    @property
    def error(self) -> str | None:
        if any(self.wrong):
            wrong, pages = sum(self.wrong), sum(self.pages)
            return f"audit: {wrong} of {pages} pages do not hold what was written; by group {self.wrong}"
        if self.changed and not self.disturbed:
            return f"audit: {self.changed} of {self.unowned} pages outside of the fill changed while it ran"
        return None

    def describe(self) -> dict[str, Any]:
        return {
            "pages": self.pages,
            "mismatches": sum(self.wrong),
            "unowned_pages": self.unowned,
            "unowned_changed": None if self.disturbed else self.changed,
            "seconds": round(self.seconds, 6),
        }


def _sum(before: list[int], more: Sequence[int]) -> list[int]:
    return [old + new for old, new in zip(before or [0] * len(more), more, strict=True)]
