"""The groups of a running engine, from their shapes alone.

Kind, block size, window and scratch blocks decide how many blocks a request holds, so that `need.py` counts for the
connector and for `run` as it does for a plan. Bytes are not rebuilt: these groups serve no pool.

    >>> from decodebench.kv.limits import EngineLimits
    >>> from decodebench.kv.need import decode_blocks
    >>> limits = EngineLimits(max_model_len=4096, max_num_batched_tokens=2048)
    >>> decode_blocks(groups_of_shapes([GroupShape("full_attention", 16)], 4096), 1000, limits, output=24)
    (64,)
"""

from collections.abc import Sequence
from typing import Any, assert_never

from decodebench.kv.blocks import GroupShape
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.specs import (
    ALIGN,
    NONE,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    LayerSpec,
    MambaState,
    SlidingWindow,
)


def groups_of_shapes(shapes: Sequence[GroupShape], max_model_len: int) -> list[KVCacheGroup]:
    """One group of one layer for each shape."""
    return [KVCacheGroup((f"group.{i}",), _spec(shape, max_model_len)) for i, shape in enumerate(shapes)]


def _spec(shape: GroupShape, max_model_len: int) -> LayerSpec:
    cell: dict[str, Any] = {
        "block_size": shape.block_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": "uint8",
    }
    match shape.kind:
        case "full_attention":
            return FullAttention(**cell)
        case "sliding_window":
            return SlidingWindow(**cell, sliding_window=shape.window)
        case "chunked_local":
            return ChunkedLocal(**cell, attention_chunk_size=shape.window)
        case "circular_buffer":
            return CircularBuffer(**cell)
        case "state":  # a state that stands for less than the whole context moves through the block table
            return MambaState(
                block_size=shape.block_size,
                shapes=((1,),),
                dtypes=("uint8",),
                cache_mode=ALIGN if shape.block_size < max_model_len else NONE,
                num_speculative_blocks=shape.scratch_blocks,
            )
        case _:
            assert_never(shape.kind)
