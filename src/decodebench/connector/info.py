"""The description of the engine that a response carries when its request asked for `info`.

Plain JSON types only. It is how a client, local or remote, learns what it measures: which connector class the engine
really loaded, the KV cache groups it built, what fits, and how it schedules.
"""

from typing import TYPE_CHECKING, Any

import vllm

import decodebench
from decodebench.connector.config import ConnectorConfig
from decodebench.connector.layout import GroupLayers, dtype_name
from decodebench.connector.limits import Limits

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


def describe(
    connector: type,
    config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    layers: GroupLayers,
    limits: Limits,
    fill: ConnectorConfig,
    children: tuple[str, ...],
) -> dict[str, Any]:
    """Everything a result must say about the engine; see docs/structure.md for the keys.

    `children` are the connectors of the MultiConnector that ours is a child of; none if it is alone.
    """
    parallel, scheduler, cache, model = (
        config.parallel_config,
        config.scheduler_config,
        config.cache_config,
        config.model_config,
    )
    return {
        "connector": {
            "class": f"{connector.__module__}.{connector.__qualname__}",
            "version": decodebench.__version__,
        },
        "vllm_version": vllm.__version__,
        "model": model.model,
        "dtype": dtype_name(model.dtype),
        "kv_cache_dtype": cache.cache_dtype,
        "fill": {"mean": fill.fill_mean, "std": fill.fill_std, "seed": fill.seed, "async": fill.async_fill},
        "device": _device(),
        "hybrid_kv_cache_manager": not scheduler.disable_hybrid_kv_cache_manager,
        "groups": _groups(kv_cache_config, layers, limits),
        "num_blocks": limits.num_blocks,
        "usable_blocks": limits.usable_blocks,
        "watermark_blocks": limits.watermark_blocks,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "vocab_size": model.get_vocab_size(),
        "special_token_ids": sorted(_special_token_ids(model.hf_config.to_dict())),
        "num_drafts": limits.num_drafts,
        "lookahead": limits.lookahead,
        "async_scheduling": bool(scheduler.async_scheduling),
        "batches_in_flight": limits.batches_in_flight,
        "prefix_caching": bool(cache.enable_prefix_caching),
        "mamba_cache_mode": getattr(cache, "mamba_cache_mode", None),
        "enforce_eager": bool(model.enforce_eager),
        "cudagraph_capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
        "load_format": str(getattr(config.load_config, "load_format", "auto")),
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        "data_parallel_rank": parallel.data_parallel_index,
        "expert_parallel": bool(parallel.enable_expert_parallel),
        "multi_connector": bool(children),
        "connectors": list(children) or [connector.__name__],
    }


def _groups(kv_cache_config: "KVCacheConfig", layers: GroupLayers, limits: Limits) -> list[dict[str, Any]]:
    return [
        {
            "kind": shape.kind,
            "spec": type(group.kv_cache_spec).__name__,
            "block_size": shape.block_size,
            "window": shape.window,
            "scratch_blocks": shape.scratch_blocks,
            "page_bytes": page_bytes,
            "layers": len(group.layer_names),
            "tokens_per_state": list(ratios),
            "filled": group_id in kv_cache_config.transfer_group_ids,
        }
        for group_id, (group, shape, page_bytes, ratios) in enumerate(
            zip(
                kv_cache_config.kv_cache_groups,
                limits.shapes,
                layers.page_bytes,
                layers.tokens_per_state,
                strict=True,
            )
        )
    ]


def _special_token_ids(config: Any) -> set[int]:
    """Token ids that a model configuration gives a role (`eos_token_id`, `image_token_index`, ...), nested ones too."""
    found: set[int] = set()
    if isinstance(config, dict):
        for key, value in config.items():
            if isinstance(value, dict):
                found |= _special_token_ids(value)
            elif str(key).endswith(("_token_id", "_token_ids", "_token_index")):
                values = value if isinstance(value, list) else [value]
                found |= {each for each in values if isinstance(each, int) and not isinstance(each, bool)}
    return found


def _device() -> str:
    from vllm.platforms import current_platform

    try:
        return str(current_platform.get_device_name())
    except (NotImplementedError, RuntimeError):
        return str(current_platform.device_type)
