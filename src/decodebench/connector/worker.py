"""The worker half: writes what the scheduler half orders, and reports what it wrote.

One instance lives in every worker process, on the worker's own shard of the KV cache. The engine's step calls it in
this order: `start` (with the step's orders), `take_finished`, `report`. All orders are jobs of one executor, in order:
a donor is copied before the first fill that takes its pages, and freed after the last.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.filling import Filler, Outcome
from decodebench.connector.layout import GroupLayers, group_shape, layer_specs, page_content
from decodebench.connector.metadata import (
    DecodeBenchConnectorMetadata,
    DonorCopy,
    JobReport,
    KeepReport,
    WorkerReport,
)
from decodebench.fill import (
    Constant,
    Content,
    DonorBank,
    Executor,
    FillExecutor,
    GroupPages,
    ImmediateExecutor,
    LayerPages,
    Normal,
)
from decodebench.kv.content import Zeros

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig

logger = logging.getLogger("vllm.decodebench")

CLOSE_TIMEOUT_S = 10.0
"""How long a shutdown waits for the fill that is being written."""


class WorkerHalf:
    """Fills the blocks of this worker.

    Args:
        config: the server owner's settings.
        kv_cache_config: the engine's groups and their layers.
        cache_dtype: the engine's `--kv-cache-dtype`, which tells plain fp8 formats apart.
        rank: this worker, in its reports.

    Raises:
        ValueError: a layer's layout cannot be filled; at start, before the engine takes requests.
    """

    def __init__(
        self, config: ConnectorConfig, kv_cache_config: "KVCacheConfig", cache_dtype: str, rank: int
    ) -> None:
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._rank = rank
        self._contents = {
            layer: page_content(layer, spec, cache_dtype) for _, layer, spec in layer_specs(kv_cache_config)
        }
        self._content = _content(config)
        self._groups: dict[int, GroupPages] = {}
        self._bank = DonorBank(self._groups)
        self._filler = Filler(self._groups, len(kv_cache_config.kv_cache_groups), self._content, self._bank)
        self._executor: Executor[Outcome] | None = None
        self._step = -1
        self._released: set[str] = set()
        self._jobs: list[JobReport] = []
        self._kept: list[KeepReport] = []
        self._layers: GroupLayers | None = GroupLayers.of(kv_cache_config)

    def register(self, kv_caches: Mapping[str, Any]) -> None:
        """Take the engine's KV cache tensors.

        Raises:
            ValueError: a layer's tensors are missing or cannot be read as pages of its spec.
        """
        layers: dict[int, list[LayerPages]] = {
            group: [] for group in self._kv_cache_config.transfer_group_ids
        }
        for group, layer, spec in layer_specs(self._kv_cache_config):
            if group not in layers:
                continue
            if layer not in kv_caches:
                raise ValueError(f"DecodeBenchConnector: the engine registered no KV cache for layer {layer}")
            content = self._contents[layer]
            layers[group].append(
                LayerPages.of(
                    layer,
                    kv_caches[layer],
                    num_blocks=self._kv_cache_config.num_blocks,
                    page_bytes=spec.page_size_bytes,
                    rows_per_block=1 if isinstance(content, Zeros) else int(spec.num_states),
                    content=content,
                )
            )
        self._content.prepare([layer for group in layers.values() for layer in group])
        for group, members in layers.items():
            shape = group_shape(self._kv_cache_config.kv_cache_groups[group].kv_cache_spec, group)
            self._groups[group] = GroupPages.of(members, block_size=shape.block_size)
        device = next(iter(self._groups.values())).pages[0].device
        self._executor = FillExecutor(device) if self._config.async_fill else ImmediateExecutor()

    def start(self, metadata: DecodeBenchConnectorMetadata) -> None:
        """Take the step's orders. With `async_fill` off they are carried out on return."""
        self._step = metadata.step
        self._released.update(metadata.release)
        for donor in metadata.drops:
            self._submit(donor, partial(self._drop, donor))
        for copy in metadata.copies:
            self._submit(copy, partial(self._keep, copy))
        if metadata.fills:
            self._submit(_FillJob(metadata.step), partial(self._filler.run, metadata.fills))

    def take_finished(self) -> tuple[set[str] | None, set[str] | None]:
        """Requests to name as sent and as received in this step: each exactly once."""
        sent = self._collect()
        released, self._released = self._released, set()
        return sent or None, released or None

    def report(self) -> WorkerReport:
        """The step's number, and what has ended since the last report."""
        jobs, self._jobs = self._jobs, []
        kept, self._kept = self._kept, []
        layers, self._layers = self._layers, None
        return WorkerReport(self._step, tuple(jobs), tuple(kept), layers)

    def close(self) -> None:
        if self._executor is None:
            return
        try:
            self._executor.close(CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            logger.warning("DecodeBenchConnector: %s", error)

    def _submit(self, key: "_FillJob | DonorCopy | int", job: Callable[[], Outcome]) -> None:
        assert self._executor is not None, "a fill was ordered before the KV caches were registered"
        self._executor.submit(key, job)

    def _keep(self, copy: DonorCopy) -> Outcome:
        return Outcome(self._bank.keep(copy.donor, copy.blocks))

    def _drop(self, donor: int) -> Outcome:
        self._bank.drop(donor)
        return Outcome(())

    def _collect(self) -> set[str]:
        """Take note of the jobs that have ended; the requests whose blocks are copied."""
        sent = set()
        for key, outcome in self._executor.finished() if self._executor is not None else []:
            if isinstance(key, _FillJob):
                self._jobs.append(self._job_report(key.step, outcome))
            elif isinstance(key, DonorCopy):
                sent.add(key.request_id)
                self._kept.append(self._keep_report(key.donor, outcome))
        return sent

    def _job_report(self, step: int, outcome: Outcome | Exception) -> JobReport:
        if isinstance(outcome, Exception):
            logger.error("DecodeBenchConnector: the fill of step %d failed", step, exc_info=outcome)
            return JobReport(step, self._rank, (), f"{type(outcome).__name__}: {outcome}")
        return JobReport(step, self._rank, outcome.blocks, audit=outcome.audit)

    def _keep_report(self, donor: int, outcome: Outcome | Exception) -> KeepReport:
        if isinstance(outcome, Exception):
            logger.error("DecodeBenchConnector: copying donor %d failed", donor, exc_info=outcome)
            return KeepReport(donor, self._rank, (), f"{type(outcome).__name__}: {outcome}")
        return KeepReport(donor, self._rank, outcome.blocks)


@dataclass(frozen=True, slots=True)
class _FillJob:
    """Key of the fills that one step ordered."""

    step: int


def _content(config: ConnectorConfig) -> Content:
    if config.fill_std > 0:
        return Normal(config.fill_mean, config.fill_std, config.seed)
    return Constant(config.fill_mean)
