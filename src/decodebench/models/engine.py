"""The engine flags that shape a layer's cache. Field names are vLLM's flags, defaults are vLLM's defaults."""

from dataclasses import dataclass, field
from typing import Literal

from decodebench.kv.rules import Rules, rules_for
from decodebench.models.errors import ModelError
from decodebench.models.gpus import Gpu, find_gpu

NEWEST_VERSION = (0, 33)
GDN_PREFILL_BACKENDS = ("auto", "triton", "flashinfer")
MAMBA_CACHE_MODES = ("none", "align", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """What the planner needs to know beside the model.

    `data_parallel_size` counts engines, each with a pool of its own.

    `draft_layers` asks for the model's own MTP layers (`--speculative-config '{"method": "mtp", ...}'`).
    """

    gpu: Gpu = field(default_factory=lambda: find_gpu("h200"))
    vllm_version: tuple[int, int] = NEWEST_VERSION
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    pp_layer_partition: tuple[int, ...] | None = None  # VLLM_PP_LAYER_PARTITION
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    allow_long_max_model_len: bool = False  # VLLM_ALLOW_LONG_MAX_MODEL_LEN
    enable_prefix_caching: bool = True
    mamba_block_size: int | None = None
    mamba_cache_mode: str = "none"  # "none" leaves the mode to vLLM
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_speculative_tokens: int = 0
    draft_layers: bool = False
    attention_backend: str | None = None
    indexer_kv_dtype: Literal["fp8", "mxfp4"] = "fp8"
    gdn_prefill_backend: str = "auto"
    disable_sliding_window: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            if getattr(self, name) < 1:
                raise ModelError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least 1"
                )
        for name in ("block_size", "max_model_len", "mamba_block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ModelError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        if self.mamba_block_size is not None and not self.enable_prefix_caching:
            raise ModelError(
                f"--mamba-block-size {self.mamba_block_size}: the engine takes it with --enable-prefix-caching only"
            )
        if self.mamba_cache_mode not in MAMBA_CACHE_MODES:
            raise ModelError(
                f"--mamba-cache-mode {self.mamba_cache_mode}: accepted: {', '.join(MAMBA_CACHE_MODES)}"
            )
        if self.gdn_prefill_backend not in GDN_PREFILL_BACKENDS:
            raise ModelError(
                f"--gdn-prefill-backend {self.gdn_prefill_backend}: its blocks are not known here; "
                f"accepted: {', '.join(GDN_PREFILL_BACKENDS)}"
            )
        if self.num_speculative_tokens < 0:
            raise ModelError(
                f"num_speculative_tokens is {self.num_speculative_tokens}; it cannot be negative"
            )

    @property
    def rules(self) -> Rules:
        """The version's rules, as `kv` states them."""
        return rules_for(".".join(map(str, self.vllm_version)))

    @property
    def gdn_prefill(self) -> str:
        return self.gpu.gdn_prefill if self.gdn_prefill_backend == "auto" else self.gdn_prefill_backend
