"""Attention backends as the cache sees them: block sizes, KV dtypes, strides and layouts they can read.

Read in the vLLM 0.32 classes of the same names under `v1/attention/backends/` and `models/deepseek_v4/`. Only what
shapes a page is kept here; `gpus.py` says which backend runs where.
"""

from dataclasses import dataclass, replace
from typing import Literal

from decodebench.kv.specs import MultipleOf

Kernel = Literal[
    "dense",
    "mla",
    "sparse_mla",
    "indexer",
    "v4_mla",
    "v4_indexer",
    "v4_sliding_window",
    "v4_compressor",
    "state",
]

UNQUANTIZED = ("auto", "float16", "bfloat16")
FP8 = ("fp8", "fp8_e4m3")
ANY_DTYPE = (*UNQUANTIZED, *FP8, "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla")
DENSE_DTYPES = (*UNQUANTIZED, *FP8, "fp8_e5m2")
MLA_DTYPES = (*UNQUANTIZED, *FP8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backend's demands on the cache it reads.

    `block_sizes` are its kernel block sizes: exact ones, or any multiple of a base. A block may be larger and is then
    split into kernel blocks, unless `unsplit`. Blocks must lie a multiple of `stride_rows` rows apart
    (`align_blocks_to_rows`); `stride_if_quantized` replaces that for a quantised cache.
    """

    name: str
    block_sizes: tuple[int | MultipleOf, ...]
    kv_dtypes: tuple[str, ...] = UNQUANTIZED
    head_sizes: tuple[int, ...] = ()  # () takes any
    min_queries_per_kv_head: int = 1
    layouts: tuple[str, ...] = ()  # () reads any; else most preferred first
    stride_rows: int | None = None
    stride_if_quantized: MultipleOf | None = None
    unsplit: bool = False

    @property
    def bases(self) -> tuple[int, ...]:
        return tuple(size.base if isinstance(size, MultipleOf) else size for size in self.block_sizes)

    def takes(self, kv_cache_dtype: str, head_size: int, queries_per_kv_head: int = 1) -> bool:
        return (
            kv_cache_dtype in self.kv_dtypes
            and (not self.head_sizes or head_size in self.head_sizes)
            and queries_per_kv_head >= self.min_queries_per_kv_head
        )

    def takes_block(self, block_size: int) -> bool:
        """`AttentionBackend.supports_block_size`."""
        if self.unsplit:
            return block_size in self.bases
        return any(block_size % base == 0 for base in self.bases)

    def largest_kernel_block(self, block_size: int) -> int:
        """The largest kernel block that fits into `block_size`, else the smallest there is.

        A sliding-window layer's own block size (`layers/attention/attention.py _largest_kernel_block_within`).
        """
        sizes = [
            max(size.base, block_size // size.base * size.base) if isinstance(size, MultipleOf) else size
            for size in self.block_sizes
        ]
        return max((size for size in sizes if size <= block_size), default=min(sizes))


FLASH_ATTN = Backend(name="FLASH_ATTN", block_sizes=(MultipleOf(16),))
# FA3 takes fp8; FA4's fp8 kernel for 512-wide heads on SM90 reads 64-token pages
# (`flash_attn.py _get_sm90_fa4_fp8_kv_block_size`).
FLASH_ATTN_3 = Backend(name="FLASH_ATTN", block_sizes=(MultipleOf(16),), kv_dtypes=MLA_DTYPES)
FLASH_ATTN_4_FP8 = Backend(name="FLASH_ATTN", block_sizes=(64,), kv_dtypes=FP8, head_sizes=(512,))
FLASHINFER = Backend(name="FLASHINFER", block_sizes=(16, 32, 64), kv_dtypes=DENSE_DTYPES)
FLASHINFER_SM100 = Backend(
    name="FLASHINFER", block_sizes=(16, 32, 64), kv_dtypes=DENSE_DTYPES, layouts=("LBHNC", "BLHNC")
)
# The trtllm-gen kernels serve large pages, of grouped queries only (`flashinfer.py get_supported_kernel_block_sizes`).
FLASHINFER_SM100_GROUPED = replace(
    FLASHINFER_SM100, block_sizes=(16, 32, 64, 128, 256, 512, 1024), min_queries_per_kv_head=2
)
TRITON_ATTN = Backend(name="TRITON_ATTN", block_sizes=(MultipleOf(16),), kv_dtypes=DENSE_DTYPES)
FLEX_ATTENTION = Backend(name="FLEX_ATTENTION", block_sizes=(MultipleOf(16),), layouts=("LBNHC",))
CPU_ATTN = Backend(name="CPU_ATTN", block_sizes=(MultipleOf(32),), layouts=("LBHNC",))

FLASH_ATTN_MLA = Backend(name="FLASH_ATTN_MLA", block_sizes=(MultipleOf(16),))
FLASHMLA = Backend(name="FLASHMLA", block_sizes=(64,), kv_dtypes=MLA_DTYPES)
FLASHINFER_MLA = Backend(name="FLASHINFER_MLA", block_sizes=(32, 64), kv_dtypes=MLA_DTYPES)
CUTLASS_MLA = Backend(name="CUTLASS_MLA", block_sizes=(128,), kv_dtypes=MLA_DTYPES)
TRITON_MLA = Backend(name="TRITON_MLA", block_sizes=(MultipleOf(16),), kv_dtypes=MLA_DTYPES)
CPU_MLA = Backend(name="CPU_MLA", block_sizes=(16,), unsplit=True)
AMX_MLA = Backend(name="AMX_MLA", block_sizes=(MultipleOf(32),))

FLASH_ATTN_MLA_SPARSE = Backend(name="FLASH_ATTN_MLA_SPARSE", block_sizes=(MultipleOf(64),), stride_rows=1)
FLASHMLA_SPARSE = Backend(
    name="FLASHMLA_SPARSE",
    block_sizes=(MultipleOf(64),),
    kv_dtypes=("auto", "bfloat16", "fp8_ds_mla", "fp8"),
    stride_rows=1,
    stride_if_quantized=MultipleOf(64),
)
FLASHMLA_SPARSE_SM100 = Backend(
    name="FLASHMLA_SPARSE",
    block_sizes=(MultipleOf(64),),
    kv_dtypes=("auto", "bfloat16", "fp8_ds_mla", "nvfp4_ds_mla"),
    stride_rows=1,
)
FLASHINFER_MLA_SPARSE_SM90 = Backend(
    name="FLASHINFER_MLA_SPARSE_SM90",
    block_sizes=(MultipleOf(64),),
    kv_dtypes=("auto", "bfloat16", *FP8),
    stride_rows=1,
)
FLASHINFER_MLA_SPARSE = Backend(
    name="FLASHINFER_MLA_SPARSE", block_sizes=(MultipleOf(32),), kv_dtypes=MLA_DTYPES, stride_rows=32
)
FLASHINFER_MLA_SPARSE_SM120 = Backend(
    name="FLASHINFER_MLA_SPARSE_SM120",
    block_sizes=(MultipleOf(64),),
    kv_dtypes=("auto", *FP8, "fp8_ds_mla"),
    stride_rows=64,
)
V32_INDEXER = Backend(name="DEEPSEEK_V32_INDEXER", block_sizes=(64,), kv_dtypes=ANY_DTYPE)

V4_FLASHMLA = Backend(name="FLASHMLA_SPARSE_DSV4", block_sizes=(256,), kv_dtypes=("auto", *FP8, "fp8_ds_mla"))
V4_FLASHINFER = Backend(
    name="FLASHINFER_MLA_SPARSE_DSV4", block_sizes=(256,), kv_dtypes=("auto", "bfloat16", *FP8)
)
V4_INDEXER = Backend(
    name="DEEPSEEK_V4_INDEXER", block_sizes=(256,), kv_dtypes=ANY_DTYPE, layouts=("BLHNC", "BLNHC")
)
V4_SLIDING_WINDOW = Backend(name="DEEPSEEK_SPARSE_SWA", block_sizes=(MultipleOf(32),), kv_dtypes=ANY_DTYPE)
V4_COMPRESSOR = Backend(name="COMPRESSOR", block_sizes=(MultipleOf(1),), kv_dtypes=ANY_DTYPE)
