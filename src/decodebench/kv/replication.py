"""Tensor-parallel ranks that hold the same KV.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py kv_cache_groups_tp_replicas`. A cache of fewer shards than ranks (MLA: one
latent head) is replicated, so more ranks bring no more capacity; data-parallel pools add up.
"""

from collections.abc import Sequence
from math import gcd

from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.specs import AttentionSpec, LayerSpec


def tp_replicas(
    groups: Sequence[KVCacheGroup], tensor_parallel_size: int, decode_context_parallel_size: int = 1
) -> int:
    """Consecutive tensor-parallel ranks with identical content in every layer; 1: none."""
    replicas = [
        _layer_replicas(spec, tensor_parallel_size, decode_context_parallel_size)
        for group in groups
        for _, spec in group.layer_specs
    ]
    return gcd(tensor_parallel_size, *replicas) if replicas else 1


def _layer_replicas(spec: LayerSpec, tp: int, dcp: int) -> int:
    if not isinstance(spec, AttentionSpec) or spec.max_tp_shards is None:
        return 1
    if spec.dcp_sharded and dcp > 1:
        return 1
    return max(1, tp // spec.max_tp_shards)
