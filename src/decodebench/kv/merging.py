"""When layers with different specs can share one group, and what the group's spec is then.

Source: the `merge` class methods of vLLM 0.32 `v1/kv_cache_interface.py`. They reconcile what does not
concern the blocks (a promoted layer's window, causality) and compare the rest.
"""

from collections.abc import Sequence
from dataclasses import fields

from decodebench.kv.errors import CannotStart
from decodebench.kv.specs import MLA, AttentionSpec, FullAttention, LayerSpec, SlidingWindowMLA

_ATTENTION_FIELDS = tuple(field.name for field in fields(AttentionSpec))
_MLA_FIELDS = (
    "cache_dtype_str",
    "tokens_per_state",
    "model_version",
    "cache_role",
    "is_index_group_leader",
    "block_stride_alignment",
)
_SLIDING_MLA_FIELDS = (
    "cache_dtype_str",
    "tokens_per_state",
    "model_version",
    "sliding_window",
    "extra_retained_tokens",
    "bounded_replay",
    "block_stride_alignment",
    "dcp_sharded",
    "max_tp_shards",
)


def merge(specs: Sequence[LayerSpec]) -> LayerSpec | None:
    """The spec of a group of layers with these specs, or None where they cannot share one.

    The first spec's class decides, as in the engine. Promoted windows of different sizes are a `CannotStart`.
    """
    first = specs[0]
    if isinstance(first, SlidingWindowMLA):
        return _merge_sliding_mla(specs)
    if isinstance(first, MLA):
        return _merge_mla(specs)
    if isinstance(first, FullAttention):
        return _merge_full(specs)
    return first if all(spec == first for spec in specs) else None


def _merge_full(specs: Sequence[LayerSpec]) -> FullAttention | None:
    full = [spec for spec in specs if isinstance(spec, FullAttention) and not isinstance(spec, MLA)]
    if len(full) < len(specs):
        return None
    window = _one_of("sliding_window", {spec.sliding_window for spec in full})
    chunk = _one_of("attention_chunk_size", {spec.attention_chunk_size for spec in full})
    if not _agree(full, _ATTENTION_FIELDS) or (window is not None and chunk is not None):
        return None
    shared = {name: getattr(full[0], name) for name in _ATTENTION_FIELDS}
    return FullAttention(
        **shared,
        sliding_window=window,
        attention_chunk_size=chunk,
        non_causal=any(spec.non_causal for spec in full),
    )


def _merge_mla(specs: Sequence[LayerSpec]) -> MLA | None:
    mla = [spec for spec in specs if isinstance(spec, MLA)]
    if len(mla) < len(specs) or not _agree(mla, _MLA_FIELDS) or not _agree(mla, _ATTENTION_FIELDS):
        return None
    if mla[0].head_size_v != 0:
        return None
    # `alignment` is not carried over; the padded page it led to is.
    shared = {name: getattr(mla[0], name) for name in (*_ATTENTION_FIELDS, *_MLA_FIELDS)}
    return MLA(
        **shared,
        non_causal_multi_token_decode=any(spec.non_causal_multi_token_decode for spec in mla),
    )


def _merge_sliding_mla(specs: Sequence[LayerSpec]) -> SlidingWindowMLA | None:
    """NOTE: heads and dtype are not compared (seen in 0.32), so layers of different pages take the first
    one's.
    """
    mla = [spec for spec in specs if isinstance(spec, SlidingWindowMLA)]
    if len(mla) < len(specs) or not _agree(mla, _SLIDING_MLA_FIELDS):
        return None
    kept = ("block_size", "num_kv_heads", "head_size", "dtype", "num_head_slots", "state_content_bytes")
    shared = {name: getattr(mla[0], name) for name in (*kept, *_SLIDING_MLA_FIELDS)}
    return SlidingWindowMLA(**shared, page_bytes_padded=mla[0].page_bytes_padded)


def _agree(specs: Sequence[LayerSpec], names: Sequence[str]) -> bool:
    return all(len({getattr(spec, name) for spec in specs}) == 1 for name in names)


def _one_of(name: str, sizes: set[int | None]) -> int | None:
    known = sorted(size for size in sizes if size is not None)
    if len(known) > 1:
        raise CannotStart(
            f"full-attention layers of one model carry different values of {name} {known}; "
            "vLLM keeps one a group and refuses them"
        )
    return known[0] if known else None
