"""The groups of a running engine, from the description that a response carries (`connector/info.py`, key `groups`).

Enough to count blocks with `need.py`: kind, block size, window and scratch blocks decide that. Bytes are not rebuilt:
these groups serve no pool.

    >>> from decodebench.kv.limits import EngineLimits
    >>> from decodebench.kv.need import decode_blocks
    >>> full = {"kind": "full_attention", "block_size": 16, "window": 0, "scratch_blocks": 0, "layers": 2}
    >>> limits = EngineLimits(max_model_len=4096, max_num_batched_tokens=2048)
    >>> decode_blocks(groups_of_engine([full]), 1000, limits, output=24)
    (64,)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.specs import (
    ALIGN,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    LayerSpec,
    MambaState,
    SlidingWindow,
)


def groups_of_engine(
    groups: Sequence[Mapping[str, Any]], cache_mode: str | None = ALIGN
) -> list[KVCacheGroup]:
    """One group for each description; `cache_mode` is the engine's `mamba_cache_mode`, if it has state."""
    return [
        KVCacheGroup(
            tuple(f"group.{number}.layer.{layer}" for layer in range(group["layers"])),
            _spec(group, cache_mode),
        )
        for number, group in enumerate(groups)
    ]


def _spec(group: Mapping[str, Any], cache_mode: str | None) -> LayerSpec:
    kind, block_size, window = group["kind"], group["block_size"], group["window"]
    if kind == "state":
        return MambaState(
            block_size=block_size,
            shapes=((1,),),
            dtypes=("uint8",),
            cache_mode=cache_mode or ALIGN,
            num_speculative_blocks=group["scratch_blocks"],
        )
    cell: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": "uint8"}
    match kind:
        case "full_attention":
            return FullAttention(**cell)
        case "sliding_window":
            return SlidingWindow(**cell, sliding_window=window)
        case "chunked_local":
            return ChunkedLocal(**cell, attention_chunk_size=window)
        case "circular_buffer":
            return CircularBuffer(**cell)
    raise ValueError(
        f"kind {kind!r} of a KV cache group is not known; accepted: full_attention, sliding_window, chunked_local, "
        "state, circular_buffer"
    )
