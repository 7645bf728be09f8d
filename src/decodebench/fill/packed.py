"""Packed quantised rows: fp8 codes, bfloat16 parts and scales in one `uint8` page.

Such a page cannot be filled with a number: a byte pattern that is harmless as a code is 2**64 as a scale. Each layout
has its own encoder, which quantises the drawn numbers the way the engine's cache writers do: a power-of-two scale per
tile, the least that brings the tile's largest magnitude under the e4m3 maximum of 448.

All layouts were read in vLLM 0.32. Other layouts are a subclass of `PackedLayout` and a line in `LAYOUTS`.
"""

from abc import ABC, abstractmethod

import torch

E4M3_MAX = 448.0
LEAST_MAGNITUDE = 1e-4
"""Floor of a tile's magnitude, as in the engine's writers: keeps the scale of an all-zero tile finite."""


def quantise(values: torch.Tensor, tile: int) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 codes (uint8, the shape of `values`) and exponents (float, one per tile) of `values[rows, numbers]`.

    A number is its code, read as `float8_e4m3fn`, times two to the exponent of its tile.
    """
    tiles = values.to(torch.float32).reshape(len(values), -1, tile)
    magnitude = tiles.abs().amax(-1).clamp_min(LEAST_MAGNITUDE)
    exponents = torch.ceil(torch.log2(magnitude / E4M3_MAX))
    scaled = (tiles / torch.exp2(exponents).unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX)
    codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8)
    return codes.flatten(-2), exponents


class PackedLayout(ABC):
    """One packed layout: how many numbers a row holds and how they are stored.

    A kernel block holds its rows in one or more *fields*: all rows of the first field, then all rows of the second.
    """

    numbers: int  # per row
    field_bytes: tuple[int, ...]  # of one row, in the order in which the fields lie in a kernel block

    @property
    def row_bytes(self) -> int:
        return sum(self.field_bytes)

    @abstractmethod
    def encode(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The fields, each `uint8[rows, bytes]`, of `values`, `float[rows, numbers]`."""


class Fp8DsMlaV4(PackedLayout):
    """DeepSeek-V4: 448 e4m3 + 64 bf16 (RoPE); then, for all rows, 7 UE8M0 scales (one per 64 codes) + 1 zero byte.

    UE8M0 stores exponent + 127. Source: `models/deepseek_v4/common/ops/cache_utils.py` (`quantize_and_insert_k_kernel`,
    `DequantizeAndGatherKCacheKernel`): data rows first, scale rows behind them, block padded to 576 bytes.
    """

    numbers = 512
    field_bytes = (576, 8)

    def encode(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, exponents = quantise(values[:, :448], 64)
        rope = values[:, 448:].to(torch.bfloat16).contiguous().view(torch.uint8)
        scales = (exponents + 127).clamp(0, 254).to(torch.uint8)
        return torch.cat((codes, rope), 1), torch.nn.functional.pad(scales, (0, 1))


class Fp8DsMlaV32(PackedLayout):
    """DeepSeek-V3.2: row by row 512 e4m3 + 4 float32 scales (one per 128 codes) + 64 bf16 (RoPE).

    Source: the format note in `v1/attention/backends/mla/flashmla_sparse.py`.
    """

    numbers = 576
    field_bytes = (656,)

    def encode(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, exponents = quantise(values[:, :512], 128)
        scales = torch.exp2(exponents).view(torch.uint8)
        rope = values[:, 512:].to(torch.bfloat16).contiguous().view(torch.uint8)
        return (torch.cat((codes, scales, rope), 1),)


class IndexerFp8(PackedLayout):
    """Sparse indexer keys: 128 e4m3 of every row, then one float32 scale of every row.

    Source: the FP8 indexer kernel of `models/deepseek_v4/common/ops/fused_compress_quant_cache.py` (scales start at
    `kv_cache_block_size * TOKEN_STRIDE`, a power of two stored as float32); V3.2 shares it
    (`models/deepseek_v4/attention.py DeepseekV4Indexer`).
    """

    numbers = 128
    field_bytes = (128, 4)

    def encode(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        codes, exponents = quantise(values, 128)
        return codes, torch.exp2(exponents).view(torch.uint8)


LAYOUTS: dict[str, PackedLayout] = {
    "fp8_ds_mla_v4": Fp8DsMlaV4(),
    "fp8_ds_mla_v32": Fp8DsMlaV32(),
    "indexer_fp8": IndexerFp8(),
}


def packed_layout(layer: str, name: str, row_bytes: int) -> PackedLayout:
    """The layout `name`; a ValueError naming the layer if it is unknown or its rows have another size."""
    layout = LAYOUTS.get(name)
    if layout is None:
        raise ValueError(f"layer {layer}: unknown packed layout {name!r}; known are {', '.join(LAYOUTS)}")
    if layout.row_bytes != row_bytes:
        raise ValueError(
            f"layer {layer}: rows of {name} have {layout.row_bytes} bytes, the spec says {row_bytes}"
        )
    return layout
