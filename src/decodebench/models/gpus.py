"""Which backend runs a kind of layer on a device, and what else about a device changes the cache.

The order of backends is that of vLLM 0.32 `platforms/cuda.py _get_backend_priorities`; the first that takes the KV
dtype and the head size wins, as in `get_valid_backends`. CPU: `platforms/cpu.py check_and_update_config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from decodebench.models import backends as b
from decodebench.models.backends import Backend, Kernel
from decodebench.models.errors import ModelError

DEFAULT_BLOCK_SIZE = 16  # `config/cache.py CacheConfig.DEFAULT_BLOCK_SIZE`


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device by name.

    `forced_block_sizes`: what the platform sets even against the user; `default_block_size`: what it sets instead of
    asking the backends. `gdn_prefill`: the kernel
    that `additional_config.gdn_prefill_backend = auto` resolves to (`gdn/qwen_gdn_linear_attn.py
    _resolve_gdn_prefill_backend`; SM100 and SM120 resolve to flashinfer too, with CUDA 13 and 128-wide heads).
    `ssm_state_dtype`: what the platform makes of `--mamba-ssm-cache-dtype auto`, before a model has its say.
    """

    name: str
    capability: tuple[int, int] | None  # None: a CPU
    backends: Mapping[Kernel, tuple[Backend, ...]]
    forced_block_sizes: Mapping[Kernel, int] = field(default_factory=dict)
    default_block_size: int | None = None
    gdn_prefill: Literal["triton", "flashinfer"] = "triton"
    ssm_state_dtype: str | None = None

    @property
    def is_cuda(self) -> bool:
        return self.capability is not None

    @property
    def major(self) -> int:
        """Major compute capability; 0 for a CPU."""
        return 0 if self.capability is None else self.capability[0]

    def backend(
        self,
        kernel: Kernel,
        kv_cache_dtype: str,
        head_size: int,
        queries_per_kv_head: int = 1,
        *,
        asked: str | None = None,
    ) -> Backend:
        """The backend that runs layers of `kernel`; `asked`: `--attention-backend`, if it is one of them."""
        candidates = self.backends.get(kernel, ())
        if not candidates:
            raise ModelError(
                f"--gpu {self.name}: no attention backend of vLLM 0.32 runs {kernel} layers there"
            )
        if asked is not None:
            candidates = (
                tuple(backend for backend in candidates if backend.name == asked.upper()) or candidates
            )
        for backend in candidates:
            if backend.takes(kv_cache_dtype, head_size, queries_per_kv_head):
                return backend
        accepted = dict.fromkeys(dtype for backend in candidates for dtype in backend.kv_dtypes)
        raise ModelError(
            f"--kv-cache-dtype {kv_cache_dtype}: no attention backend for {kernel} layers takes it on {self.name}; "
            f"accepted: {', '.join(accepted)}"
        )


_V4: Mapping[Kernel, tuple[Backend, ...]] = {
    "v4_mla": (b.V4_FLASHMLA, b.V4_FLASHINFER),
    "v4_indexer": (b.V4_INDEXER,),
    "v4_sliding_window": (b.V4_SLIDING_WINDOW,),
    "v4_compressor": (b.V4_COMPRESSOR,),
}
# SM80 and SM89: FLASH_ATTN's fp8 needs FA3 on SM90; of the MLA backends only Triton's supports the capability.
_SM80: Mapping[Kernel, tuple[Backend, ...]] = {
    "dense": (b.FLASH_ATTN, b.FLASHINFER, b.TRITON_ATTN, b.FLEX_ATTENTION),
    "mla": (b.TRITON_MLA,),
}
_SM90: Mapping[Kernel, tuple[Backend, ...]] = {
    "dense": (b.FLASH_ATTN_4_FP8, b.FLASH_ATTN_3, b.FLASHINFER, b.TRITON_ATTN, b.FLEX_ATTENTION),
    "mla": (b.FLASH_ATTN_MLA, b.FLASHMLA, b.TRITON_MLA),
    "sparse_mla": (b.FLASH_ATTN_MLA_SPARSE, b.FLASHMLA_SPARSE, b.FLASHINFER_MLA_SPARSE_SM90),
    "indexer": (b.V32_INDEXER,),
    **_V4,
}
_SM100: Mapping[Kernel, tuple[Backend, ...]] = {
    "dense": (b.FLASHINFER_SM100_GROUPED, b.FLASHINFER_SM100, b.FLASH_ATTN, b.TRITON_ATTN, b.FLEX_ATTENTION),
    "mla": (b.FLASHINFER_MLA, b.CUTLASS_MLA, b.FLASHMLA, b.TRITON_MLA),
    # bf16 with more than 16 heads a rank prefers FlashMLA, the rest FlashInfer; both take the same blocks.
    "sparse_mla": (b.FLASHINFER_MLA_SPARSE, b.FLASHMLA_SPARSE_SM100),
    "indexer": (b.V32_INDEXER,),
    **_V4,
}
_SM120: Mapping[Kernel, tuple[Backend, ...]] = {
    "dense": (b.FLASH_ATTN, b.FLASHINFER, b.TRITON_ATTN, b.FLEX_ATTENTION),
    "mla": (b.TRITON_MLA,),
    "sparse_mla": (b.FLASHINFER_MLA_SPARSE_SM120,),
    "indexer": (b.V32_INDEXER,),
    **_V4,
}
_CPU: Mapping[Kernel, tuple[Backend, ...]] = {"dense": (b.CPU_ATTN,), "mla": (b.CPU_MLA,), **_V4}

# name -> (compute capability, backends)
_CUDA: Mapping[str, tuple[tuple[int, int], Mapping[Kernel, tuple[Backend, ...]]]] = {
    "a100": ((8, 0), _SM80),
    "a10": ((8, 6), _SM80),
    "l4": ((8, 9), _SM80),
    "l40s": ((8, 9), _SM80),
    "h20": ((9, 0), _SM90),
    "h100": ((9, 0), _SM90),
    "h200": ((9, 0), _SM90),
    "gh200": ((9, 0), _SM90),
    "b200": ((10, 0), _SM100),
    "gb200": ((10, 0), _SM100),
    "b300": ((10, 3), _SM100),
    "gb300": ((10, 3), _SM100),
    "rtx-pro-6000": ((12, 0), _SM120),
    "rtx-5090": ((12, 0), _SM120),
}
# With AVX-512 BF16 the platform resets the SSM state to float32; AMX has an MLA kernel of its own.
_CPU_AVX2 = Gpu(
    name="cpu-avx2",
    capability=None,
    backends=_CPU,
    forced_block_sizes={"mla": 16, "v4_mla": 256},
    default_block_size=128,
)
_CPU_AVX512 = replace(_CPU_AVX2, name="cpu", ssm_state_dtype="float32")
_CPU_AMX = replace(
    _CPU_AVX512, name="cpu-amx", backends={**_CPU, "mla": (b.AMX_MLA,)}, forced_block_sizes={"v4_mla": 256}
)

GPUS: Mapping[str, Gpu] = {
    **{
        name: Gpu(
            name=name,
            capability=capability,
            backends=table,
            gdn_prefill="flashinfer" if capability == (9, 0) else "triton",
        )
        for name, (capability, table) in _CUDA.items()
    },
    **{gpu.name: gpu for gpu in (_CPU_AVX512, _CPU_AVX2, _CPU_AMX)},
}


def find_gpu(name: str) -> Gpu:
    """The device called `name`, in any case and with or without blanks."""
    key = "-".join(name.lower().replace("nvidia", "").replace("_", " ").replace("-", " ").split())
    try:
        return GPUS[key]
    except KeyError:
        raise ModelError(f"--gpu {name!r} is not known; accepted: {', '.join(GPUS)}") from None
