"""The worker's end of an audit: reads a job's fills back, and looks whether anything else has changed."""

from collections.abc import Iterable, Mapping
from time import perf_counter

from decodebench.connector.metadata import AuditReport, RequestFill
from decodebench.fill import Canaries, GroupPages, wrong_blocks
from decodebench.fill.expected import Expected


class Auditor:
    """Audits one job: made before the job writes, asked after it.

    Checksums and comparisons go through the job's own stream, so they are in order with its writes.
    """

    def __init__(self, groups: Mapping[int, GroupPages], fills: Mapping[str, RequestFill]) -> None:
        self._start = perf_counter()
        self._groups = groups
        self._fills = fills
        self._canaries = Canaries(groups)
        self._before = self._canaries.take()
        self._spent = perf_counter() - self._start

    def report(self, expected: Mapping[int, Iterable[Expected]]) -> AuditReport:
        """Read back what each group must hold now."""
        start = perf_counter()
        wrong = {group: wrong_blocks(each) for group, each in expected.items()}
        named = {
            request: [set(writes.block_ids) for writes in fill.writes]
            for request, fill in self._fills.items()
        }
        owned = {block for groups in named.values() for blocks in groups for block in blocks}
        unowned, changed = self._canaries.changed(self._before, owned)
        return AuditReport(
            {request: self._pages(groups) for request, groups in named.items()},
            {
                request: self._pages(
                    [blocks & wrong.get(group, set()) for group, blocks in enumerate(groups)]
                )
                for request, groups in named.items()
            },
            unowned,
            changed,
            self._spent + perf_counter() - start,
        )

    def _pages(self, blocks: list[set[int]]) -> tuple[int, ...]:
        return tuple(
            len(ids) * len(self._groups[group].pages) if ids else 0 for group, ids in enumerate(blocks)
        )
