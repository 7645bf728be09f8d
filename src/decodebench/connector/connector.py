"""`DecodeBenchConnector`: the only file that speaks vLLM's connector interface.

It claims that all but the last token of a request's KV cache already exist, and writes numbers or pages of donors into
exactly the blocks the engine allocates for them. A drop-in for vLLM's in-tree class of the same name:

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "DecodeBenchConnector",
        "kv_connector_module_path": "decodebench.connector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"fill_mean": 0.015, "fill_std": 0.0}}'

vLLM builds one instance in the scheduler's process and one in each worker; every hook forwards to the half it belongs
to.
"""

from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.donors import Donors
from decodebench.connector.info import describe
from decodebench.connector.layout import GroupLayers, group_shape
from decodebench.connector.limits import Limits, unsupported
from decodebench.connector.metadata import DecodeBenchConnectorMetadata, WorkerReport
from decodebench.connector.params import withhold
from decodebench.connector.scheduler import SchedulerHalf
from decodebench.connector.siblings import connectors_in
from decodebench.connector.steplog import StepLog
from decodebench.connector.trace import Trace
from decodebench.connector.worker import WorkerHalf

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

# Below `vllm.`, so that vLLM's own logging configuration shows it.
logger = init_logger("vllm.decodebench")

__all__ = ["DecodeBenchConnector"]


class DecodeBenchConnector(KVConnectorBase_V1, SupportsHMA):
    """Fills the KV cache of requests, holds cohorts at a start line, and logs every step.

    Raises:
        ValueError: a wrong `kv_connector_extra_config`, an unknown KV cache layout, or an engine that cannot be
            measured exactly; at start, naming the key, layer or flag.
    """

    def __init__(
        self, vllm_config: "VllmConfig", role: KVConnectorRole, kv_cache_config: "KVCacheConfig"
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = self._kv_transfer_config
        config = ConnectorConfig.from_extra(transfer.kv_connector_extra_config)
        if transfer.kv_role == "kv_producer":
            raise ValueError(
                "DecodeBenchConnector: kv_role must be kv_both or kv_consumer; it produces no KV for others"
            )
        if reason := unsupported(vllm_config.parallel_config):
            raise ValueError(f"DecodeBenchConnector: {reason}")
        self._last_step: SchedulerOutput | None = None
        self._scheduler: SchedulerHalf | None = None
        self._worker: WorkerHalf | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = self._build_scheduler(vllm_config, kv_cache_config, config)
            logger.warning(
                "DecodeBenchConnector: this server returns meaningless text: its KV cache is made up for benchmarking. "
                "Do not expose it to users."
            )
            if config.startup_fill:
                logger.info(
                    "DecodeBenchConnector: startup_fill is accepted, but content is written when a request gets its "
                    "blocks: KV cache groups share bytes, so no fill of the whole cache is right for every group."
                )
        else:
            rank = vllm_config.parallel_config.rank
            self._worker = WorkerHalf(config, kv_cache_config, vllm_config.cache_config.cache_dtype, rank)

    def _build_scheduler(
        self, vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig", config: ConnectorConfig
    ) -> SchedulerHalf:
        limits = engine_limits(vllm_config, kv_cache_config)
        layers = GroupLayers.of(kv_cache_config)
        parallel = vllm_config.parallel_config
        trace = None
        if config.trace_dir is not None:
            trace = Trace(config.trace_dir, parallel.data_parallel_index, logger.warning)
        return SchedulerHalf(
            config,
            transfer_groups=kv_cache_config.transfer_group_ids,
            limits=limits,
            num_workers=parallel.world_size,
            log=StepLog(trace),
            salt_matters=bool(vllm_config.cache_config.enable_prefix_caching),
            donors=Donors(
                limits.shapes,
                kv_cache_config.transfer_group_ids,
                layers.page_bytes,
                int(config.donor_bank_gib * (1 << 30)),
                parallel.world_size,
            ),
            layers=layers,
            info=lambda told: describe(
                type(self),
                vllm_config,
                kv_cache_config,
                told,
                limits,
                config,
                self._children(config.connectors),
            ),
            warn=logger.warning,
        )

    def _children(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """The connectors of the MultiConnector that this is a child of; none if it is alone."""
        metadata = self._last_step.kv_connector_metadata if self._last_step is not None else None
        return connectors_in(metadata, DecodeBenchConnectorMetadata, named)

    # Worker side

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._worker_half.register(kv_caches)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, DecodeBenchConnectorMetadata)
        self._worker_half.start(metadata)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self._worker_half.take_finished()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return self._worker_half.report()

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: a synchronous fill is complete when `start_load_kv` returns."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: "AttentionMetadata", **kwargs: Any
    ) -> None:
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""

    # Scheduler side

    @property
    def requires_kv_delivery(self) -> bool:
        """No: `kv_both` would make it true, and then a preemption drops tokens that are still in flight."""
        return False

    def bind_gpu_block_pool(self, gpu_block_pool: "BlockPool") -> None:
        self._scheduler_half.bind_pool(gpu_block_pool.get_num_free_blocks)

    def get_loaded_kv_cache_group_ids(self, request: "Request") -> tuple[int, ...]:
        """Every group that is filled: the engine need not zero their blocks, for a fill writes every byte."""
        return self._kv_cache_config.transfer_group_ids

    def on_new_request(self, request: "Request") -> None:
        self._scheduler_half.new_request(request)
        if (sampling := request.sampling_params) is not None:
            sampling.extra_args = withhold(sampling.extra_args)

    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._scheduler_half.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int
    ) -> None:
        block_ids = blocks.get_block_ids() if num_external_tokens else ()
        self._scheduler_half.allocated(request, block_ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> KVConnectorMetadata:
        self._last_step = scheduler_output
        return self._scheduler_half.build_meta(scheduler_output)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, WorkerReport):
            self._scheduler_half.worker_output(report)

    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """The hook of engines and MultiConnectors that run without the hybrid KV cache manager."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        aborted = request.status in (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        return self._scheduler_half.finished(request, block_ids, aborted)

    def reset_cache(self) -> bool | None:
        """Nothing is cached here."""
        return True

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.close()

    @property
    def _worker_half(self) -> WorkerHalf:
        assert self._worker is not None, "a worker hook was called on the scheduler's instance"
        return self._worker

    @property
    def _scheduler_half(self) -> SchedulerHalf:
        assert self._scheduler is not None, "a scheduler hook was called on a worker's instance"
        return self._scheduler


def engine_limits(vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig") -> Limits:
    """What the engine can hold and run at once, from its own configuration."""
    scheduler = vllm_config.scheduler_config
    active = getattr(scheduler, "max_num_active_seqs", None)
    return Limits(
        shapes=tuple(
            group_shape(group.kv_cache_spec, index)
            for index, group in enumerate(kv_cache_config.kv_cache_groups)
        ),
        num_blocks=kv_cache_config.num_blocks,
        watermark_blocks=int(getattr(scheduler, "watermark", 0.0) * kv_cache_config.num_blocks),
        max_num_seqs=min(scheduler.max_num_seqs, active or scheduler.max_num_seqs),
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=vllm_config.model_config.max_model_len,
        num_drafts=vllm_config.num_speculative_tokens,
        lookahead=vllm_config.num_lookahead_tokens,
        batches_in_flight=vllm_config.max_concurrent_batches,
    )
