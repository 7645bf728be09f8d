"""The hybrid manager off: local layers are allocated as if they were full attention, so that one group serves
all.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py unify_hybrid_kv_cache_specs`, `_promote_local_kv_cache_specs`.
Only the allocation changes; the layers still attend within their window.
"""

from dataclasses import fields
from typing import Any

from decodebench.kv.errors import CannotStart
from decodebench.kv.groups import LayerSpecs, UniformTypeSpecs
from decodebench.kv.merging import merge
from decodebench.kv.rules import Rules
from decodebench.kv.specs import (
    MLA,
    AttentionSpec,
    ChunkedLocal,
    FullAttention,
    LayerSpec,
    MambaState,
    SlidingWindow,
    SlidingWindowMLA,
)


def is_uniform(specs: LayerSpecs) -> bool:
    """Whether all layers can share one spec."""
    return merge(list(specs.values())) is not None


def promote_all(specs: LayerSpecs, rules: Rules) -> dict[str, LayerSpec]:
    """Specs with the hybrid manager off. Layers sharded and not sharded over DCP are promoted apart."""
    promoted = dict(specs)
    for replicated in (False, True):
        part = {name: spec for name, spec in specs.items() if _is_replicated(spec) == replicated}
        if part:
            promoted |= promote(part, rules)
    return promoted


def promote(specs: LayerSpecs, rules: Rules) -> dict[str, LayerSpec]:
    """`specs` with window and chunked layers turned into full attention; `CannotStart` if that leaves several
    types.
    """
    promoted = dict(specs)
    if is_uniform(promoted) or UniformTypeSpecs.of(promoted):
        return promoted
    full_blocks = {spec.block_size for spec in specs.values() if isinstance(spec, FullAttention)}
    if full_blocks:
        block_size = full_blocks.pop() if len(full_blocks) == 1 else None
        for name, spec in specs.items():
            if isinstance(spec, (SlidingWindow, ChunkedLocal)):
                promoted[name] = _as_full(spec, block_size or spec.block_size, rules)
    if not (is_uniform(promoted) or UniformTypeSpecs.of(promoted)):
        raise CannotStart(
            f"without the hybrid KV cache manager all layers need one cache type; {_obstacle(specs)}"
        )
    return promoted


def _as_full(spec: SlidingWindow | ChunkedLocal, block_size: int, rules: Rules) -> FullAttention:
    """The full-attention spec that holds this layer's rows; fields that only the target has keep their
    defaults.
    """
    if isinstance(spec, SlidingWindowMLA) and not rules.promote_sliding_mla:
        raise CannotStart(
            "without the hybrid KV cache manager vLLM from 0.31 on fails to promote sliding-window MLA layers "
            "(TypeError: MLAAttentionSpec takes no bounded_replay)"
        )
    target = MLA if isinstance(spec, SlidingWindowMLA) else FullAttention
    accepted = {field.name for field in fields(target)}
    values: dict[str, Any] = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name in accepted}
    values["block_size"] = block_size
    if spec.page_bytes_padded is not None:
        unpadded = spec.page_bytes_unpadded * block_size // spec.block_size
        values["page_bytes_padded"] = max(spec.page_bytes_padded, unpadded)
    return target(**values)


def _is_replicated(spec: LayerSpec) -> bool:
    return isinstance(spec, AttentionSpec) and not spec.dcp_sharded


def _obstacle(specs: LayerSpecs) -> str:
    kinds = sorted({spec.kind for spec in specs.values()})
    if any(isinstance(spec, MambaState) for spec in specs.values()):
        return f"recurrent state cannot become attention (this model mixes {', '.join(kinds)})"
    return f"promoting local layers leaves more than one (this model mixes {', '.join(kinds)})"
