"""The scheduler half: which requests are filled and held, what the workers are ordered to do, what each step was.

One instance lives in the scheduler's process of every DP rank. Its hooks run in the engine's critical path and must not
raise, whatever a request asks for.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from decodebench.connector.cohort import ADMITTED_WITHOUT_FILL, Answer, Phase, StartLine
from decodebench.connector.config import ConnectorConfig
from decodebench.connector.donors import Donors, Unusable
from decodebench.connector.findings import Findings
from decodebench.connector.intake import Intake
from decodebench.connector.layout import GroupLayers
from decodebench.connector.ledger import Filled, Ledger
from decodebench.connector.limits import Limits
from decodebench.connector.metadata import DecodeBenchConnectorMetadata, RequestFill, WorkerReport
from decodebench.connector.params import KEY, RequestParams
from decodebench.connector.steplog import Composition, StepLog
from decodebench.kv.blocks import select
from decodebench.kv.writes import GroupWrites

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class SchedulerHalf:
    """Decides and records; touches no tensor.

    Args:
        config: the server owner's settings.
        transfer_groups: ids of the KV cache groups that may be filled.
        limits: what the engine can hold and run at once, with the shape of every group.
        num_workers: workers that each report every fill (TP x PP of this scheduler).
        log: where the steps are recorded.
        salt_matters: whether filled blocks would be found by later requests (prefix caching is on).
        donors: the donors that requests are filled from.
        layers: the layers of each group as the scheduler is told them, until workers tell better.
        info: describes the engine, with such layers, when a request asks for it.
        warn: the engine's logger.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        transfer_groups: tuple[int, ...],
        limits: Limits,
        num_workers: int,
        log: StepLog,
        salt_matters: bool,
        donors: Donors,
        layers: GroupLayers,
        info: Callable[[GroupLayers], dict[str, Any]],
        warn: Callable[[str], None],
    ) -> None:
        self._config = config
        self._transfer_groups = transfer_groups
        self._limits = limits
        self._num_workers = num_workers
        self._log = log
        self._donors = donors
        self._layers = layers
        self._info = info
        self._warn = warn
        self._intake = Intake(config, salt_matters, donors, warn)
        self._ledger = Ledger(num_workers)
        self._line = StartLine(limits.misfit, self._has_room, self._has_content)
        self._composition = Composition()
        self._free_blocks: Callable[[], int] = lambda: limits.num_blocks - 1
        self._requests: dict[str, RequestParams] = {}
        self._errors: dict[str, str] = {}
        self._copied: dict[str, tuple[int, ...]] = {}  # pages per group that come from donors
        self._audits: dict[str, Findings] = {}  # of requests without a cohort
        self._offers: dict[str, tuple[int, bool]] = {}  # answered, not yet allocated: (local, asynchronous)
        self._loading: set[str] = set()  # asynchronous fills that must be reported as received exactly once
        self._filled: set[str] = set()  # of those, filled on every worker and not yet released
        self._step = 0
        self._gated = 0

    def bind_pool(self, free_blocks: Callable[[], int]) -> None:
        self._free_blocks = free_blocks

    def new_request(self, request: "Request") -> None:
        """A request has arrived at the engine, before its first admission scan."""
        request_id = request.request_id
        params, error = self._intake.read(request)
        self._requests[request_id] = params
        self._composition.add(request_id, request.num_prompt_tokens)
        if params.cohort is not None:
            end = request.num_tokens + request.max_tokens
            error = self._line.arrive(request_id, params.cohort, end, monotonic_ns()) or error
            if params.unfillable is not None and self._line.cohort_of(request_id) is not None:
                self._spoil(request_id, params.unfillable)
        if error is not None:
            self._errors[request_id] = error

    def matched_tokens(self, request: "Request", local: int) -> tuple[int | None, bool]:
        """How many tokens beyond the `local` ones exist elsewhere: all but the last. None: ask later.

        Asking again changes nothing: after a preemption the engine asks once a step until it finds blocks.
        """
        request_id = request.request_id
        if request_id not in self._requests:
            self.new_request(request)
        params = self._requests[request_id]
        if params.cohort is not None and params.cohort.prefill:
            return self._started_together(request, local)
        if not params.fill:
            return 0, False
        # NOTE: a donor stands for the prompt only. What a preempted request had put out is computed again, so that
        # it goes on as it would have; with made-up numbers it would not matter.
        known = request.num_prompt_tokens if params.donors else request.num_tokens
        external = known - 1 - local
        held = False
        if request.num_preemptions == 0 and self._line.cohort_of(request_id) is not None:
            answer = self._line.answer(request_id, external)
            if answer is Answer.WAIT:
                self._gated += 1
                return None, False
            held = answer is Answer.HOLD
        if not held and self._donors.on_their_way(params.donors):
            self._gated += 1
            return None, False
        if external <= 0:
            return 0, False
        # An audited fill is awaited whatever the server does else: a request that ends in the step that fills it is
        # answered before the workers' report comes.
        asynchronous = held or self._config.async_fill or params.audit
        self._offers[request_id] = (local, asynchronous)
        return external, asynchronous

    def allocated(self, request: "Request", block_ids: tuple[list[int], ...], external: int) -> None:
        """The engine gave a request blocks. `external` of its tokens are ours to fill, whatever was answered before."""
        request_id = request.request_id
        offer = self._offers.pop(request_id, None)
        cohort = self._line.cohort_of(request_id)
        if external == 0 or offer is None:
            if cohort is not None and cohort.params.prefill and cohort.phase is Phase.ADMITTING:
                if request_id not in cohort.held:
                    self._line.run_prefill(request_id, offer[0] if offer else 0)
            elif cohort is not None and request_id not in cohort.held:
                self._line.fail(cohort, ADMITTED_WITHOUT_FILL.format(cohort.params.id))
            return
        local, asynchronous = offer
        if asynchronous:
            self._loading.add(request_id)
        if cohort is not None and cohort.phase is Phase.ADMITTING:
            self._line.hold(request_id, local)
        writes = [GroupWrites()] * len(self._limits.shapes)
        for group in self._transfer_groups:
            writes[group] = select(self._limits.shapes[group], block_ids[group], local, local + external)
        fill = RequestFill(tuple(writes), external, audit=self._requests[request_id].audit)
        fill = self._with_content(request_id, fill, block_ids, local + external)
        self._ledger.order(request_id, fill)

    def build_meta(self, output: "SchedulerOutput") -> DecodeBenchConnectorMetadata:
        """The step's orders to the workers; records what the step computes."""
        now = monotonic_ns()
        step = self._step
        self._step += 1
        if self._line.has_expiring:
            self._line.expire(now)
        if output.total_num_scheduled_tokens:
            self._ledger.disturb()
        orders = self._ledger.take_orders(step)
        releases = self._releases(step) if self._filled or self._line.prefilling else ()
        copies, drops = self._donors.take_orders()
        meta = DecodeBenchConnectorMetadata(step, orders, releases, drops, copies)
        if self._log.wanted:
            cohort = self._line.active
            members = cohort.members if cohort is not None else ()
            self._log.scheduled(
                self._composition.row(step, now, output, members, self._ledger.in_flight, self._gated)
            )
        self._gated = 0
        return meta

    def worker_output(self, report: WorkerReport) -> None:
        """A step's outputs came back."""
        self._log.completed(report.step, monotonic_ns())
        if report.layers is not None:
            self._layers = report.layers
            self._donors.learn_page_bytes(report.layers.page_bytes)
        for job in report.jobs:
            for filled in self._ledger.report(job):
                self._note_filled(filled)
        for kept in report.kept:
            if (error := self._donors.report(kept)) is not None:
                self._warn(f"DecodeBenchConnector: {error}")

    def finished(
        self, request: "Request", block_ids: tuple[list[int], ...], aborted: bool
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request is over. Whether its blocks are still to be copied (the workers then name it as sent), and what its
        response carries under our key, or None when there is nothing to say."""
        request_id = request.request_id
        answer: dict[str, Any] = {}
        params = self._requests.pop(request_id, None)
        copying = False
        if params is not None and params.donor is not None:
            donor, refusal = self._donors.finish(request_id, block_ids, request.num_prompt_tokens, aborted)
            copying = donor is not None
            if donor is not None:
                answer["donor"] = self._donors.answer(donor)
            elif refusal is not None:
                self._errors.setdefault(request_id, refusal)
        if (copied := self._copied.pop(request_id, None)) is not None:
            answer["donor_pages"] = list(copied)
        if (found := self._audits.pop(request_id, None)) is not None:
            answer["audit"] = found.describe()
        cohort = self._line.cohort_of(request_id)
        error = self._errors.pop(request_id, None) or (cohort.error if cohort else None)
        if error is not None:
            answer["error"] = error
        if params is not None and params.info:
            answer["info"] = self._info(self._layers) | {"donor_bank": self._donors.describe()}
        if cohort is not None and not aborted:
            answer["cohort"] = cohort.describe() | {"workers": self._num_workers}
            if cohort.take_log(request_id):
                answer["steps"] = self._log.take()
        self._line.leave(request_id, aborted)
        if self._line.active is None:
            self._log.stop()
        self._offers.pop(request_id, None)
        self._composition.remove(request_id)
        return copying, {KEY: answer} if answer else None

    def close(self) -> None:
        self._log.close()

    def _started_together(self, request: "Request", local: int) -> tuple[int | None, bool]:
        """Of a member that is really prefilled: nothing exists elsewhere, but it comes later until all are there."""
        request_id = request.request_id
        if request.num_preemptions == 0 and self._line.cohort_of(request_id) is not None:
            if self._line.answer(request_id, request.num_tokens - 1 - local) is Answer.WAIT:
                self._gated += 1
                return None, False
            self._offers[request_id] = (local, False)
        return 0, False

    def _has_room(self, ends: list[int]) -> bool:
        return self._limits.blocks_needed(ends) + self._limits.watermark_blocks <= self._free_blocks()

    def _has_content(self, members: Iterable[str]) -> bool:
        """Whether no member waits for a donor that is on its way."""
        asked = (self._requests[member] for member in members if member in self._requests)
        return not any(self._donors.on_their_way(params.donors) for params in asked)

    def _with_content(
        self, request_id: str, fill: RequestFill, block_ids: tuple[list[int], ...], total: int
    ) -> RequestFill:
        """The fill from the donors that the request names; where that cannot be, as it is."""
        params = self._requests[request_id]
        if not params.donors:
            return fill
        try:
            writes, sources = self._donors.plan(params.donors, params.seed, block_ids, fill.writes, total)
        except Unusable as reason:
            self._spoil(request_id, f"filled with the server's numbers: {reason}")
            return fill
        self._copied[request_id] = tuple(len(each.pages) for each in sources)
        return replace(fill, writes=writes, sources=sources)

    def _releases(self, step: int) -> tuple[str, ...]:
        """Filled requests to let run: a whole cohort at once, everybody else as soon as filled."""
        if started := self._line.take_release(step):
            self._log.start()
        held = (self._line.cohort_of(request_id) for request_id in self._filled)
        ready = self._loading.intersection(started) | {
            request_id
            for request_id, cohort in zip(self._filled, held, strict=True)
            if cohort is None or cohort.phase is not Phase.ADMITTING
        }
        self._filled -= ready
        self._loading -= ready
        return tuple(ready)

    def _note_filled(self, filled: Filled) -> None:
        request_id = filled.request_id
        cohort = self._line.cohort_of(request_id)
        if filled.audit is not None and cohort is not None:
            cohort.note_audit(filled.audit)
        elif filled.audit is not None and request_id in self._requests:
            self._audits[request_id] = filled.audit
        for error in (filled.error, filled.audit.error if filled.audit is not None else None):
            if error is not None:
                self._warn(f"DecodeBenchConnector: {error}")
                self._spoil(request_id, error)
        if request_id not in self._loading:
            return
        self._filled.add(request_id)
        if cohort is not None and cohort.phase is Phase.ADMITTING:
            cohort.note_filled(request_id, filled.pages)

    def _spoil(self, request_id: str, reason: str) -> None:
        """A request does not have the content it asked for: breaks its cohort, or is told in its response."""
        if (cohort := self._line.cohort_of(request_id)) is not None:
            self._line.fail(cohort, f"cohort {cohort.params.id!r}: {reason}")
        elif request_id in self._requests:
            self._errors[request_id] = reason
