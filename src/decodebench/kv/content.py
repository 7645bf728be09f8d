"""What the bytes of one layer's page mean.

A fill writes numbers that the model will read back, so it must know how the page stores them. That is a property of
the layer's KV cache *spec*, not of the storage dtype of the tensor the engine hands over: plain fp8 lives in `uint8`
tensors, a Mamba state in one raw `int8` page, `fp8_ds_mla` rows mix fp8, bf16 and scales in one `uint8` row.

Number formats carry torch's dtype names (`bfloat16`, `float8_e4m3fn`, ...), so that this room needs no torch.
"""

from dataclasses import dataclass
from math import prod

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
}
"""Bytes of one element of every number format that a fill can write."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every element of a row is one plain number (attention K/V, plain MLA latents, plain fp8).

    `in_rows`: a token's numbers lie in the row that the tensor's shape gives it. Where they do not, a kernel
    block can only be written whole.
    """

    dtype: str
    in_rows: bool = True

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class TypedPart:
    """One tensor of a recurrent state, stored densely inside the page."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent state (Mamba, GDN, KDA, short convolution): its tensors one after another from byte 0 of the page.

    Layout as in vLLM 0.32 `v1/kv_cache_interface.py MambaSpec` (`shapes`, `dtypes`); the rest of the page is padding.
    """

    parts: tuple[TypedPart, ...]

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of a packed quantised layout, written by the layout's own writer in `fill/packed.py`.

    `layout` names the writer: `fp8_ds_mla_v4`, `fp8_ds_mla_v32`, `indexer_fp8`. `row_bytes` is one row: one stored
    state of one head slot.
    """

    layout: str
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Zeros:
    """Integer metadata beside numbers (circular buffers): only zero is safe."""


PageContent = Numbers | State | PackedRows | Zeros
