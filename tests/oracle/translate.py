"""Our KV cache specs as vLLM's, and back: field by field, so that equality on one side is equality on the other."""

from dataclasses import fields
from types import SimpleNamespace

import torch
from vllm.config import VllmConfig
from vllm.v1 import kv_cache_interface as theirs
from vllm.v1.attention.backend import MultipleOf as TheirMultipleOf
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_layout import KVCacheLayout

from decodebench.kv import specs as ours
from decodebench.kv.groups import KVCacheGroup, UniformTypeSpecs
from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits

CLASSES = {
    ours.FullAttention: theirs.FullAttentionSpec,
    ours.SlidingWindow: theirs.SlidingWindowSpec,
    ours.ChunkedLocal: theirs.ChunkedLocalAttentionSpec,
    ours.CircularBuffer: theirs.CircularBufferSpec,
    ours.MLA: theirs.MLAAttentionSpec,
    ours.SlidingWindowMLA: theirs.SlidingWindowMLASpec,
    ours.MambaState: theirs.MambaSpec,
}
NAMES = {
    "page_bytes_padded": "page_size_padded",
    "quant_mode": "kv_quant_mode",
    "cache_mode": "mamba_cache_mode",
}


def _dtype(name):
    return getattr(torch, name)


def _alignment(value):
    return TheirMultipleOf(value.base) if isinstance(value, ours.MultipleOf) else value


TO_VLLM = {
    "dtype": _dtype,
    "dtypes": lambda names: tuple(_dtype(name) for name in names),
    "quant_mode": lambda name: theirs.KVQuantMode[name.upper()],
    "mamba_type": lambda name: MambaAttentionBackendEnum[name.upper()],
    "cache_role": theirs.SparseCacheRole,
    "block_stride_alignment": _alignment,
}
FROM_VLLM = {
    "dtype": lambda dtype: str(dtype).removeprefix("torch."),
    "dtypes": lambda dtypes: tuple(str(dtype).removeprefix("torch.") for dtype in dtypes),
    "quant_mode": lambda mode: mode.name.lower(),
    "mamba_type": lambda kind: kind.name.lower(),
    "cache_role": lambda role: role.value,
    "block_stride_alignment": lambda a: ours.MultipleOf(a.base) if isinstance(a, TheirMultipleOf) else a,
}


def to_vllm(spec):
    values = {
        NAMES.get(field.name, field.name): TO_VLLM.get(field.name, lambda value: value)(
            getattr(spec, field.name)
        )
        for field in fields(spec)
    }
    return CLASSES[type(spec)](**values)


def from_vllm(spec):
    ours_by_theirs = {value: key for key, value in CLASSES.items()}
    target = ours_by_theirs[type(spec)]
    values = {
        field.name: FROM_VLLM.get(field.name, lambda value: value)(
            getattr(spec, NAMES.get(field.name, field.name))
        )
        for field in fields(target)
    }
    return target(**values)


def group_from_vllm(group):
    """Our group with the same names and specs; padding layers are not on vLLM's group."""
    spec = group.kv_cache_spec
    if isinstance(spec, theirs.UniformTypeKVCacheSpecs):
        layers = tuple((name, from_vllm(one)) for name, one in spec.kv_cache_specs.items())
        return KVCacheGroup(tuple(group.layer_names), UniformTypeSpecs(layers))
    return KVCacheGroup(tuple(group.layer_names), from_vllm(spec))


def engine_config(
    limits: EngineLimits, layout: Layout, *, hybrid_manager: bool = True, cache_mode: str = "none"
):
    """The parts of a `VllmConfig` that grouping and capacity read. Concurrent batches come from vLLM's own property."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=limits.max_model_len, original_max_model_len=limits.max_model_len
        ),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=not hybrid_manager,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            async_scheduling=limits.async_scheduling,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=limits.decode_context_parallel_size,
            pipeline_parallel_size=limits.pipeline_parallel_size,
            tensor_parallel_size=1,
        ),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: KVCacheLayout[layout.value],
            num_gpu_blocks_override=None,
            prefix_cache_retention_interval=None,
            mamba_cache_mode=cache_mode,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        num_prefill_lookahead_tokens=0,
        use_v2_model_runner=limits.use_v2_model_runner,
    )
    config.max_concurrent_batches = VllmConfig.max_concurrent_batches.fget(config)
    config.max_in_flight_tokens = VllmConfig.max_in_flight_tokens.fget(config)
    return config
