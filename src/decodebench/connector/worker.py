"""The worker half: writes what the scheduler half orders, and reports what it wrote.

One instance lives in every worker process, on the worker's own shard of the KV cache. The engine's step calls it in
this order: `start` (with the step's orders), `take_released`, `report`.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.layout import group_shape, layer_specs, page_content
from decodebench.connector.metadata import DecodeBenchConnectorMetadata, JobReport, RequestFill, WorkerReport
from decodebench.fill import (
    Constant,
    Content,
    Executor,
    FillExecutor,
    GroupPages,
    ImmediateExecutor,
    LayerPages,
    Normal,
)
from decodebench.kv.content import Zeros
from decodebench.kv.writes import GroupWrites

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
        self._executor: Executor[tuple[int, ...]] | None = None
        self._step = -1
        self._released: set[str] = set()

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
        """Take the step's orders. With `async_fill` off the fills are complete on return."""
        self._step = metadata.step
        self._released.update(metadata.release)
        if not metadata.fills:
            return
        assert self._executor is not None, "a fill was ordered before the KV caches were registered"
        fills = list(metadata.fills.values())
        self._executor.submit(metadata.step, lambda: self._write(fills))

    def take_released(self) -> set[str] | None:
        """Requests to name as received in this step: each exactly once."""
        released, self._released = self._released, set()
        return released or None

    def report(self) -> WorkerReport:
        """The step's number, and the fills that have ended since the last report."""
        finished = self._executor.finished() if self._executor is not None else []
        jobs = tuple(self._job_report(int(str(step)), outcome) for step, outcome in finished)
        return WorkerReport(self._step, jobs)

    def close(self) -> None:
        if self._executor is None:
            return
        try:
            self._executor.close(CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            logger.warning("DecodeBenchConnector: %s", error)

    def _write(self, fills: list[RequestFill]) -> tuple[int, ...]:
        """Write one step's fills; the blocks written per KV cache group."""
        return tuple(
            self._write_group(group, [fill.writes[group] for fill in fills])
            for group in range(len(self._kv_cache_config.kv_cache_groups))
        )

    def _write_group(self, group: int, writes: list[GroupWrites]) -> int:
        if not any(each.num_blocks for each in writes):
            return 0
        pages = self._groups[group]
        return pages.write(self._content, pages.prepare(writes)).pages // len(pages.pages)

    def _job_report(self, step: int, outcome: tuple[int, ...] | Exception) -> JobReport:
        if isinstance(outcome, Exception):
            logger.error("DecodeBenchConnector: the fill of step %d failed", step, exc_info=outcome)
            return JobReport(step, self._rank, (), f"{type(outcome).__name__}: {outcome}")
        return JobReport(step, self._rank, outcome)


def _content(config: ConnectorConfig) -> Content:
    if config.fill_std > 0:
        return Normal(config.fill_mean, config.fill_std, config.seed)
    return Constant(config.fill_mean)
