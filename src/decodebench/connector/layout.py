"""From vLLM's KV cache specs to ours: how a group maps tokens to blocks, and what the bytes of a layer's page mean.

The only place of the server side that knows vLLM's spec classes. A spec it does not know is an error at start that
names the layer: guessing a layout would fill a server with numbers that mean something else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import torch
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from decodebench.kv.blocks import GroupShape
from decodebench.kv.content import ITEM_BYTES, Numbers, PackedRows, PageContent, State, TypedPart, Zeros

PACKED_ROW_LAYOUTS = {584: "fp8_ds_mla_v4", 656: "fp8_ds_mla_v32", 132: "indexer_fp8"}
"""Packed `uint8` rows by their bytes: DeepSeek-V4 and -V3.2 `fp8_ds_mla`, and the sparse indexer's keys."""


def layer_specs(config: KVCacheConfig) -> Iterator[tuple[int, str, KVCacheSpec]]:
    """(group id, layer name, that layer's own spec) of every layer, wrapped specs opened."""
    for group_id, group in enumerate(config.kv_cache_groups):
        for layer in group.layer_names:
            yield group_id, layer, layer_spec(group.kv_cache_spec, layer)


def layer_spec(group_spec: KVCacheSpec, layer: str) -> KVCacheSpec:
    if not isinstance(group_spec, UniformTypeKVCacheSpecs):
        return group_spec
    # NOTE: a layer that shares another's cache is in the group's names without a spec of its own.
    return group_spec.kv_cache_specs.get(layer, group_spec.first_spec)


@dataclass(frozen=True, slots=True)
class GroupLayers:
    """The layers of each group, taken together.

    Workers know them, all workers the same. vLLM tells its scheduler the spec of one layer of a group
    (`generate_scheduler_kv_cache_config`), and layers may differ.
    """

    page_bytes: tuple[int, ...]  # of one block in one worker
    tokens_per_state: tuple[tuple[str, ...], ...]  # distinct, as fractions: "4", "1/2"

    @classmethod
    def of(cls, config: KVCacheConfig) -> Self:
        sizes = [0] * len(config.kv_cache_groups)
        ratios: list[set[str]] = [set() for _ in sizes]
        for group, _, spec in layer_specs(config):
            sizes[group] += spec.page_size_bytes
            ratios[group].add(str(spec.tokens_per_state))
        return cls(tuple(sizes), tuple(tuple(sorted(each, key=Fraction)) for each in ratios))


def group_shape(group_spec: KVCacheSpec, group_id: int) -> GroupShape:
    """How the group maps tokens to blocks.

    Raises:
        ValueError: a kind of cache this connector does not know.
    """
    spec = group_spec.first_spec if isinstance(group_spec, UniformTypeKVCacheSpecs) else group_spec
    size = group_spec.block_size
    if isinstance(spec, CircularBufferSpec):
        return GroupShape("circular_buffer", size)
    if isinstance(spec, MambaSpec):
        if spec.mamba_cache_mode not in ("none", "align"):
            raise ValueError(
                f"DecodeBenchConnector: KV cache group {group_id} uses mamba cache mode {spec.mamba_cache_mode!r}; "
                "known modes are none and align (set --mamba-cache-mode)"
            )
        return GroupShape("state", size, scratch_blocks=spec.num_speculative_blocks)
    if isinstance(spec, SlidingWindowSpec):
        return GroupShape("sliding_window", size, window=spec.sliding_window + spec.extra_retained_tokens)
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return GroupShape("chunked_local", size, window=spec.attention_chunk_size)
    if isinstance(spec, FullAttentionSpec):
        return GroupShape("full_attention", size)
    raise ValueError(
        f"DecodeBenchConnector: KV cache group {group_id} has the spec {type(spec).__name__}, "
        "which this version does not know how to fill"
    )


def page_content(layer: str, spec: KVCacheSpec, cache_dtype: str) -> PageContent:
    """What the bytes of the layer's page mean, by its spec (never by the dtype of the tensor that holds it).

    Raises:
        ValueError: a layout this connector cannot write numbers into; names the layer.
    """
    if isinstance(spec, CircularBufferSpec):
        return Zeros()
    if isinstance(spec, MambaSpec):
        return State(tuple(_typed_part(layer, *part) for part in zip(spec.shapes, spec.dtypes, strict=True)))
    if isinstance(spec, AttentionSpec):
        name = dtype_name(spec.dtype)
        found = Numbers(name) if name in ITEM_BYTES else _quantised(spec, cache_dtype)
        if isinstance(found, Numbers):
            return replace(found, in_rows=_in_rows(spec))
        if found is not None:
            return found
        raise ValueError(
            f"DecodeBenchConnector: layer {layer} stores {name} pages (kv cache dtype {cache_dtype!r}, "
            f"{spec.kv_quant_mode.name}), a packed layout this version has no writer for; "
            "choose another --kv-cache-dtype"
        )
    raise ValueError(
        f"DecodeBenchConnector: layer {layer} has the unknown KV cache spec {type(spec).__name__}"
    )


def _quantised(spec: AttentionSpec, cache_dtype: str) -> PageContent | None:
    """Content of a `uint8` page: packed DeepSeek rows, or plain fp8 as vLLM's `FP8_PER_TENSOR` mode stores it."""
    if spec.dtype != torch.uint8:
        return None
    own_dtype = getattr(spec, "cache_dtype_str", None) or cache_dtype
    row_bytes = spec.state_content_size_bytes
    if isinstance(spec, MLAAttentionSpec | SlidingWindowMLASpec) and row_bytes in PACKED_ROW_LAYOUTS:
        return PackedRows(PACKED_ROW_LAYOUTS[row_bytes], row_bytes)
    if spec.kv_quant_mode != KVQuantMode.FP8_PER_TENSOR or spec.state_content_bytes is not None:
        return None
    if own_dtype in ("fp8", "fp8_e4m3"):
        from vllm.platforms import current_platform

        return Numbers(dtype_name(current_platform.fp8_dtype()))
    return Numbers("float8_e5m2") if own_dtype == "fp8_e5m2" else None


def _in_rows(spec: AttentionSpec) -> bool:
    """Whether a token's numbers lie in the row of the page that the registered shape gives it.

    Not so in vLLM 0.32's CPU attention: `v1/attention/backends/cpu_attn.py` puts the keys of a block into its first
    half and the values into its second, and `cpu_attn_reshape_and_cache` transposes the keys in there.
    """
    from vllm.platforms import current_platform

    return not current_platform.is_cpu() or isinstance(spec, MLAAttentionSpec | SlidingWindowMLASpec)


def _typed_part(layer: str, shape: tuple[int, ...], dtype: torch.dtype) -> TypedPart:
    name = dtype_name(dtype)
    if name not in ITEM_BYTES:
        raise ValueError(
            f"DecodeBenchConnector: layer {layer} keeps a {name} state, which this version cannot write"
        )
    return TypedPart(name, tuple(shape))


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
