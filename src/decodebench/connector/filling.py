"""The fills of one step in one worker: the server's numbers and pages of donors, group by group, audited on request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from decodebench.connector.audit import Auditor
from decodebench.connector.metadata import AuditReport, RequestFill
from decodebench.fill import Content, DonorBank, GroupPages
from decodebench.fill.expected import Expected


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job did: blocks per KV cache group, and what its audit found."""

    blocks: tuple[int, ...]
    audit: AuditReport | None = None


@dataclass(frozen=True, slots=True)
class Filler:
    """Carries out fill jobs, one at a time.

    Args:
        groups: pages of the groups that are filled.
        num_groups: of the engine, filled or not.
        content: the server's numbers.
        bank: the donors.
    """

    groups: Mapping[int, GroupPages]
    num_groups: int
    content: Content
    bank: DonorBank

    def run(self, fills: Mapping[str, RequestFill]) -> Outcome:
        """Write one step's fills."""
        if not any(fill.audit for fill in fills.values()):
            return Outcome(
                tuple(self._write(group, fills.values(), None) for group in range(self.num_groups))
            )
        auditor = Auditor(self.groups, fills)
        expected: dict[int, list[Expected]] = {group: [] for group in self.groups}
        blocks = tuple(
            self._write(group, fills.values(), expected.get(group)) for group in range(self.num_groups)
        )
        return Outcome(blocks, auditor.report(expected))

    def _write(self, group: int, fills: Iterable[RequestFill], expected: list[Expected] | None) -> int:
        """Write one group; what must be there then goes into `expected`. Returns the blocks."""
        numbers = [fill.writes[group] for fill in fills if not fill.sources]
        copies = [(fill.writes[group], fill.sources[group]) for fill in fills if fill.sources]
        blocks = 0
        if any(each.num_blocks for each in numbers):
            pages = self.groups[group]
            prepared = pages.prepare(numbers)
            pages.write(self.content, prepared)
            blocks += prepared.num_blocks
            if expected is not None:
                expected += [each for one in pages.pages for each in self.content.expected(one, prepared)]
        if any(each.num_blocks for each, _ in copies):
            planned = self.bank.prepare(group, copies)
            self.bank.write(group, planned)
            blocks += planned.num_blocks
            if expected is not None:
                expected += self.bank.expected(group, planned)
        return blocks
