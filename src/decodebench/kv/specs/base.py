"""The contract of a layer's KV cache spec: bytes of one block, and blocks one request may need.

A spec describes one layer's cache on one rank (heads already divided by tensor parallelism). Two specs are
equal, and hash equally, exactly when vLLM's would be: the grouping compares them.
"""

from dataclasses import dataclass, replace
from math import gcd
from typing import Self

from decodebench.kv.arithmetic import round_up
from decodebench.kv.errors import CannotStart
from decodebench.kv.limits import EngineLimits


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """Blocks must hold whole kernel blocks of up to `base` tokens."""

    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """Base of all specs. Sizes are bytes; `block_size` is tokens a block."""

    block_size: int
    dcp_sharded: bool = False  # decode context parallelism shards the token positions of this cache
    block_stride_alignment: int | MultipleOf | None = None
    page_bytes_padded: int | None = None

    @property
    def kind(self) -> str:
        """vLLM's name of the kind (`v1/kv_cache_interface.py KVCacheSpecKind`)."""
        raise NotImplementedError

    @property
    def page_bytes_unpadded(self) -> int:
        """Bytes of one block of this layer that carry content."""
        raise NotImplementedError

    @property
    def page_bytes(self) -> int:
        """Bytes one block of this layer occupies, padding included."""
        if self.page_bytes_padded is None:
            return self.page_bytes_unpadded
        if self.page_bytes_padded < self.page_bytes_unpadded:
            raise CannotStart(
                f"page_bytes_padded is {self.page_bytes_padded}, below the {self.page_bytes_unpadded} bytes "
                f"that this {self.kind} page holds"
            )
        return self.page_bytes_padded

    @property
    def num_heads(self) -> int:
        """Head slots of a page; a page that is not divided by heads counts as one."""
        return 1

    @property
    def padding_bytes(self) -> int:
        return self.page_bytes - self.page_bytes_unpadded

    @property
    def prefix_cacheable(self) -> bool:
        """Whether blocks of this layer take part in prefix caching."""
        return True

    def max_blocks(self, limits: EngineLimits) -> int:
        """Blocks for which start-up sizing plans one request of `max_model_len` tokens."""
        raise NotImplementedError

    def skipped_tokens(self, settled: int) -> int:
        """Tokens at the start of a request, of which `settled` are computed for good, whose slots are given back."""
        return 0

    def same_type_as(self, other: "LayerSpec") -> bool:
        """Whether `other` needs the same token slots, so that one block table can serve both layers.

        Block size and sharding are compared by the caller (`UniformTypeKVCacheSpecs.is_uniform_type`).
        """
        raise NotImplementedError

    @property
    def stride_alignment(self) -> int:
        """Bytes of which the stride between blocks must be a multiple (`get_block_stride_alignment`)."""
        alignment = self.block_stride_alignment
        if not isinstance(alignment, MultipleOf):
            return alignment or 1
        kernel_block = gcd(alignment.base, self.block_size)
        if kernel_block == self.block_size:
            return 1
        stride = self.with_block_size(kernel_block).page_bytes
        if stride == 0:
            raise CannotStart(
                f"a kernel block of {kernel_block} tokens holds no whole state of this {self.kind}"
            )
        return stride

    @property
    def block_stride(self) -> int:
        """Bytes between two blocks of this layer where every layer has a region of its own."""
        return round_up(self.page_bytes, self.stride_alignment)

    def with_block_size(self, block_size: int) -> Self:
        return replace(self, block_size=block_size)

    def with_padded_page(self, page_bytes: int) -> Self:
        return replace(self, page_bytes_padded=page_bytes)
