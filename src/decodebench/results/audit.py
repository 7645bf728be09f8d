"""The proof that a fill wrote what it was to write and nothing else, as `run.json` holds it (`run --audit`)."""

from collections.abc import Sequence
from itertools import zip_longest

from decodebench.results.model import Nanoseconds, Record


class AuditProof(Record):
    """What the workers found when they read their pages back, after the fill and before the release.

    A page is one layer's part of one block. All workers and data-parallel ranks together.
    """

    pages: tuple[int, ...] = ()
    """Pages compared byte by byte with what was to be written, per KV cache group."""
    mismatches: int = 0
    """Those that held anything else; 0 in a valid repeat."""
    unowned_pages: int = 0
    """Pages outside of the fill of which a checksum was taken before and after it."""
    unowned_changed: int | None = 0
    """Those of them that changed; 0 in a valid repeat. Absent: other requests ran meanwhile and may have written."""
    duration_ns: Nanoseconds = 0
    """What the audit took, added up over workers; no measurement contains it."""

    @property
    def fault(self) -> str | None:
        """Why a repeat with this proof does not count, or None."""
        if self.mismatches:
            return f"audit: {self.mismatches} of {sum(self.pages)} pages do not hold what was written"
        if self.unowned_changed:
            changed, pages = self.unowned_changed, self.unowned_pages
            return f"audit: {changed} of {pages} pages outside of the fill changed while it ran"
        return None

    @classmethod
    def total(cls, proofs: Sequence["AuditProof"]) -> "AuditProof | None":
        """The sum of several, of the same groups; None of none."""
        if not proofs:
            return None
        changed = [proof.unowned_changed for proof in proofs]
        return cls(
            pages=tuple(sum(group) for group in zip_longest(*(proof.pages for proof in proofs), fillvalue=0)),
            mismatches=sum(proof.mismatches for proof in proofs),
            unowned_pages=sum(proof.unowned_pages for proof in proofs),
            unowned_changed=None if None in changed else sum(each or 0 for each in changed),
            duration_ns=sum(proof.duration_ns for proof in proofs),
        )
