"""Per-layer KV cache specs, one file per family; `base.py` is the contract."""

from decodebench.kv.specs.attention import (
    AttentionSpec,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    SlidingWindow,
)
from decodebench.kv.specs.base import LayerSpec, MultipleOf
from decodebench.kv.specs.mla import INDEXER, MLA, SPARSE, SlidingWindowMLA
from decodebench.kv.specs.state import ALIGN, ALL, NONE, MambaState

__all__ = [
    "ALIGN",
    "ALL",
    "INDEXER",
    "MLA",
    "NONE",
    "SPARSE",
    "AttentionSpec",
    "ChunkedLocal",
    "CircularBuffer",
    "FullAttention",
    "LayerSpec",
    "MambaState",
    "MultipleOf",
    "SlidingWindow",
    "SlidingWindowMLA",
]
