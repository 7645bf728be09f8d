"""Fills that were ordered and not yet reported by every worker.

One step's fills are one job. A job is done when every worker of the engine has reported it; the pages each worker says
it wrote, per KV cache group, must equal what the plan of the blocks says. That is what "filled" means in a result.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from decodebench.connector.findings import Findings
from decodebench.connector.metadata import JobReport, RequestFill


@dataclass(slots=True)
class Job:
    """The fills of one step: which requests, and the pages each group owes."""

    pages: dict[str, tuple[int, ...]]  # per request; several may name the same block
    owed: tuple[int, ...]  # distinct blocks
    reports: list[JobReport] = field(default_factory=list)
    disturbed: bool = False  # requests ran while it was written

    def verdict(self) -> str | None:
        """What was wrong with the job, or None."""
        for report in self.reports:
            if report.error is not None:
                return f"the fill failed on worker {report.rank}: {report.error}"
            if report.pages != self.owed:
                return (
                    f"worker {report.rank} wrote {list(report.pages)} pages per group, "
                    f"the plan says {list(self.owed)}"
                )
        return None


@dataclass(frozen=True, slots=True)
class Filled:
    """A request whose fill all workers reported; `error` when its content is not what was ordered."""

    request_id: str
    pages: tuple[int, ...]
    error: str | None
    audit: Findings | None


class Ledger:
    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._orders: dict[str, RequestFill] = {}
        self._jobs: dict[int, Job] = {}

    @property
    def in_flight(self) -> int:
        """Requests whose fill is ordered and not reported by every worker."""
        return len(self._orders) + sum(len(job.pages) for job in self._jobs.values())

    def order(self, request_id: str, fill: RequestFill) -> None:
        self._orders[request_id] = fill

    def disturb(self) -> None:
        """Requests run in the step that is being scheduled: they write pages while the jobs in flight do."""
        for job in self._jobs.values():
            job.disturbed = True

    def take_orders(self, step: int) -> dict[str, RequestFill]:
        """The fills to send to the workers with this step."""
        orders, self._orders = self._orders, {}
        if orders:
            pages = {
                name: tuple(writes.num_blocks for writes in fill.writes) for name, fill in orders.items()
            }
            self._jobs[step] = Job(pages, owed_pages(orders.values()))
        return orders

    def report(self, report: JobReport) -> list[Filled]:
        """A worker reported a job. Returns the requests that are now filled on every worker."""
        job = self._jobs.get(report.step)
        assert job is not None, f"a worker reported the unknown fill job {report.step}"
        job.reports.append(report)
        if len(job.reports) < self._num_workers:
            return []
        del self._jobs[report.step]
        error = job.verdict()
        return [
            Filled(request_id, pages, error, findings(request_id, job))
            for request_id, pages in job.pages.items()
        ]


def findings(request_id: str, job: Job) -> Findings | None:
    """What the audit found of a request, over all workers; None if it was not audited."""
    found = Findings()
    for report in job.reports:
        if report.audit is not None:
            found.add(report.audit, request_id, job.disturbed)
    return found if found.pages else None


def owed_pages(fills: Iterable[RequestFill]) -> tuple[int, ...]:
    """Distinct blocks per group that the fills of one job name: what every worker must report as written."""
    groups: list[set[int]] = []
    for fill in fills:
        groups = groups or [set() for _ in fill.writes]
        for named, writes in zip(groups, fill.writes, strict=True):
            named.update(writes.block_ids)
    return tuple(len(named) for named in groups)
