"""Attention caches that store K and V heads per token, and the circular buffer.

Sources: vLLM 0.32 `v1/kv_cache_interface.py`, the classes of the same names ending in `Spec`.
"""

from dataclasses import dataclass

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.dtypes import dtype_bytes
from decodebench.kv.errors import CannotStart
from decodebench.kv.limits import EngineLimits
from decodebench.kv.specs.base import LayerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec(LayerSpec):
    """A page of `head slots x states` cells, each holding the K and the V of one head and one state.

    `tokens_per_state` > 1 is a compressed cache: one stored state stands for that many tokens.
    `state_content_bytes` replaces the cell size computed from heads and dtype where a backend packs its cells
    (fp8_ds_mla: 584 or 656 B).
    """

    dcp_sharded: bool = True
    num_kv_heads: int
    head_size: int
    dtype: str
    head_size_v: int = -1  # -1: the same as head_size
    quant_mode: str = "none"  # vLLM's KVQuantMode name, lower case
    num_head_slots: int | None = None  # where packing differs from one slot per KV head
    state_content_bytes: int | None = None
    tokens_per_state: int = 1
    max_tp_shards: int | None = None  # ranks beyond this hold replicas; None: not replicated

    def __post_init__(self) -> None:
        if self.head_size_v == -1:
            object.__setattr__(self, "head_size_v", self.head_size)

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads if self.num_head_slots is None else self.num_head_slots

    @property
    def num_states(self) -> int:
        """Rows of a page."""
        return self.block_size // self.tokens_per_state

    @property
    def state_bytes(self) -> int:
        """Bytes of one cell: one head slot of one stored state."""
        if self.state_content_bytes is not None:
            return self.state_content_bytes
        return (self.head_size + self.head_size_v) * dtype_bytes(self.dtype)

    @property
    def page_bytes_unpadded(self) -> int:
        return self.num_heads * self.num_states * self.state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention(AttentionSpec):
    """Every token keeps its slot.

    `sliding_window` or `attention_chunk_size` is set where a local layer was promoted: its blocks are
    allocated for all tokens while its computation stays local.
    """

    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal: bool = False

    @property
    def kind(self) -> str:
        return "full_attention"

    def max_blocks(self, limits: EngineLimits) -> int:
        tokens = limits.max_model_len
        if self.dcp_sharded:
            tokens = ceil_div(tokens, limits.decode_context_parallel_size)
        return ceil_div(tokens, self.block_size)

    def same_type_as(self, other: LayerSpec) -> bool:
        return isinstance(other, FullAttention)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(AttentionSpec):
    """The last `sliding_window` tokens keep their slots; blocks before them are given back.

    `extra_retained_tokens` lengthens what is kept (not what is attended) for multi-module speculative
    decoding.
    """

    sliding_window: int
    extra_retained_tokens: int = 0

    @property
    def kind(self) -> str:
        return "sliding_window"

    def max_blocks(self, limits: EngineLimits) -> int:
        """Window and in-flight tokens, plus one block: a window need not start at a block's first token."""
        if self.dcp_sharded and limits.decode_context_parallel_size > 1:
            raise CannotStart("decode context parallelism does not support sliding-window attention")
        kept = self.sliding_window - 1 + self.extra_retained_tokens + limits.max_in_flight_tokens
        return ceil_div(min(kept, limits.max_model_len), self.block_size) + 1

    def skipped_tokens(self, settled: int) -> int:
        return max(0, settled - self.sliding_window + 1 - self.extra_retained_tokens)

    def same_type_as(self, other: LayerSpec) -> bool:
        return isinstance(other, SlidingWindow) and other.sliding_window == self.sliding_window


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLocal(AttentionSpec):
    """Tokens attend within chunks of `attention_chunk_size`; blocks of finished chunks are given back."""

    attention_chunk_size: int

    @property
    def kind(self) -> str:
        return "chunked_local_attention"

    def max_blocks(self, limits: EngineLimits) -> int:
        """Chunks start at block boundaries, so no block is added for the offset."""
        kept = self.attention_chunk_size + limits.max_in_flight_tokens
        return ceil_div(min(kept, limits.max_model_len), self.block_size)

    def skipped_tokens(self, settled: int) -> int:
        return settled // self.attention_chunk_size * self.attention_chunk_size

    def same_type_as(self, other: LayerSpec) -> bool:
        return isinstance(other, ChunkedLocal) and other.attention_chunk_size == self.attention_chunk_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CircularBuffer(AttentionSpec):
    """One block per request, overwritten in place: raw keys of the token group still being compressed."""

    @property
    def kind(self) -> str:
        return "circular_buffer"

    @property
    def prefix_cacheable(self) -> bool:
        return False

    def max_blocks(self, limits: EngineLimits) -> int:
        return 1

    def same_type_as(self, other: LayerSpec) -> bool:
        return isinstance(other, CircularBuffer)
