"""Recurrent state: one page per request (or per block of tokens) whose size does not depend on the block
size.

Source: vLLM 0.32 `v1/kv_cache_interface.py MambaSpec`, which serves Mamba-1, Mamba-2, GDN, KDA, linear
attention and short convolutions alike.
"""

from dataclasses import dataclass
from math import prod

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.dtypes import dtype_bytes
from decodebench.kv.limits import EngineLimits
from decodebench.kv.specs.base import LayerSpec

NONE = "none"
ALIGN = "align"
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaState(LayerSpec):
    """Several typed tensors, one after another in a page.

    `cache_mode` is the engine's `mamba_cache_mode`: `none` keeps one state per request, `align` a
    position-indexed one per block boundary (two resident, plus speculative and prefill-checkpoint ones),
    `all` one per block of the context (before 0.32).
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    mamba_type: str = "mamba2"  # mamba1, mamba2, short_conv, linear, gdn_attn, ...
    cache_mode: str = NONE
    num_speculative_blocks: int = 0
    num_prefill_checkpoint_blocks: int = 0
    prefill_checkpoint_alignment: int | None = None
    tp_replicated: bool = False

    def __post_init__(self) -> None:
        if len(self.shapes) != len(self.dtypes):
            raise ValueError(
                f"a state of {len(self.shapes)} shapes needs as many dtypes, got {len(self.dtypes)}"
            )

    @property
    def kind(self) -> str:
        return "mamba"

    @property
    def page_bytes_unpadded(self) -> int:
        return sum(
            prod(shape) * dtype_bytes(dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )

    def max_blocks(self, limits: EngineLimits) -> int:
        if self.cache_mode == ALIGN:
            return 2 + self.num_speculative_blocks + self.num_prefill_checkpoint_blocks
        if self.cache_mode == ALL and limits.rules.state_mode_all:
            return ceil_div(limits.max_model_len, self.block_size) + self.num_speculative_blocks
        return 1 + self.num_speculative_blocks

    def skipped_tokens(self, settled: int) -> int:
        """In mode `align` only the state after the last settled token is kept."""
        return max(settled - 1, 0) if self.cache_mode == ALIGN else 0

    def same_type_as(self, other: LayerSpec) -> bool:
        return (
            isinstance(other, MambaState)
            and other.num_speculative_blocks == self.num_speculative_blocks
            and other.num_prefill_checkpoint_blocks == self.num_prefill_checkpoint_blocks
            and other.prefill_checkpoint_alignment == self.prefill_checkpoint_alignment
            and other.page_bytes == self.page_bytes
            and other.tp_replicated == self.tp_replicated
        )
