"""What crosses between the scheduler half and the workers: one message each way per engine step."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from decodebench.connector.layout import GroupLayers
from decodebench.kv.writes import GroupWrites, Sources


@dataclass(frozen=True, slots=True)
class RequestFill:
    """The fill of one request: its blocks in every KV cache group (empty for groups that are not transferred)."""

    writes: tuple[GroupWrites, ...]
    num_tokens: int  # external tokens: those the fill stands for
    sources: tuple[Sources, ...] = ()  # per group, of a fill from donors; empty: the server's numbers
    audit: bool = False


@dataclass(frozen=True, slots=True)
class DonorCopy:
    """A donor to copy into the bank: its blocks in every group, in the order of their positions.

    The engine keeps them until every worker has named `request_id` as sent, exactly once.
    """

    donor: int
    request_id: str
    blocks: tuple[list[int], ...]


@dataclass
class DecodeBenchConnectorMetadata(KVConnectorMetadata):
    """Scheduler -> workers.

    `release` names the requests whose asynchronous load every worker must report as received in this step, exactly
    once: the engine counts these reports over all workers, and the last one lets the request run. Workers take `drops`
    first, then `copies`, then `fills`.
    """

    step: int
    fills: dict[str, RequestFill] = field(default_factory=dict)
    release: tuple[str, ...] = ()
    drops: tuple[int, ...] = ()  # donors to free, before the copies
    copies: tuple[DonorCopy, ...] = ()

    @property
    def reqs_to_fill(self) -> dict[str, tuple[tuple[list[int], ...], int]]:
        """The fills in the in-tree connector's form: request -> (block ids per group, external tokens)."""
        return {
            request_id: (tuple(writes.block_ids for writes in fill.writes), fill.num_tokens)
            for request_id, fill in self.fills.items()
        }


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What one worker found when it read a job's fills back. Pages are one block of one layer's storage."""

    checked: dict[str, tuple[int, ...]]  # request -> pages read back per group
    wrong: dict[str, tuple[int, ...]]  # of those, pages with a byte that is not as intended
    unowned: int  # pages outside of the job's blocks
    changed: int  # of those, pages that are not as before the fill
    seconds: float


@dataclass(frozen=True, slots=True)
class JobReport:
    """One worker finished the fills that `step` ordered: the pages it wrote per KV cache group."""

    step: int
    rank: int
    pages: tuple[int, ...]
    error: str | None = None
    audit: AuditReport | None = None


@dataclass(frozen=True, slots=True)
class KeepReport:
    """One worker has copied a donor (and named its request as sent): the pages it holds per KV cache group."""

    donor: int
    rank: int
    pages: tuple[int, ...]
    error: str | None = None


@dataclass
class WorkerReport(KVConnectorWorkerMetadata):
    """Workers -> scheduler. Present in every step, so that the scheduler half sees each step's outputs come back."""

    step: int
    jobs: tuple[JobReport, ...] = ()
    kept: tuple[KeepReport, ...] = ()
    layers: GroupLayers | None = None  # in a worker's first report

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "WorkerReport":
        assert isinstance(other, WorkerReport), f"cannot aggregate with {type(other).__name__}"
        assert self.step == other.step, f"workers report different steps: {self.step} and {other.step}"
        layers = self.layers or other.layers
        return WorkerReport(self.step, self.jobs + other.jobs, self.kept + other.kept, layers)
