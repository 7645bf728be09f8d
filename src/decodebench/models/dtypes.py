"""From dtype flags to torch dtype names: the model's, the KV cache's and the recurrent state's.

Read in vLLM 0.32 `utils/torch_utils.py` (`STR_DTYPE_TO_TORCH_DTYPE`, `resolve_kv_cache_dtype_string`),
`config/model.py _get_and_verify_dtype` and `layers/mamba/mamba_utils.py MambaStateDtypeCalculator`.
"""

from dataclasses import dataclass

from decodebench.models.config_file import ModelConfig
from decodebench.models.engine import EngineFlags
from decodebench.models.errors import ModelError

FLOATS = {
    "float16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float": "float32",
}
# KV dtype flag -> (torch dtype, KVQuantMode). Per-token-head, TurboQuant and NVFP4 formats pack extra bytes that only
# their backends know; they are refused.
KV_CACHE_DTYPES = {
    "float16": ("float16", "none"),
    "bfloat16": ("bfloat16", "none"),
    "fp8": ("uint8", "fp8_per_tensor"),
    "fp8_e4m3": ("uint8", "fp8_per_tensor"),
    "fp8_e5m2": ("uint8", "fp8_per_tensor"),
    "fp8_inc": ("float8_e4m3fn", "fp8_per_tensor"),
    "fp8_ds_mla": ("uint8", "fp8_per_tensor"),
    "nvfp4_ds_mla": ("uint8", "nvfp4_ds_mla"),
}
# `MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP`
MODELOPT_KV_DTYPES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDtypes:
    """`kv_flag` is `--kv-cache-dtype` after the checkpoint's own wish was heard; `auto` stores the model's dtype."""

    model: str
    kv_flag: str
    mamba_cache: str
    mamba_ssm: str

    @property
    def kv(self) -> str:
        return kv_torch_dtype(self.kv_flag, self.model)

    @property
    def kv_quant_mode(self) -> str:
        return "none" if self.kv_flag == "auto" else KV_CACHE_DTYPES[self.kv_flag][1]

    @property
    def conv_state(self) -> str:
        return self.model if self.mamba_cache == "auto" else self.mamba_cache

    def ssm_state(self, default: str | None = None) -> str:
        """The recurrent state's; `default` is the model's own where the flag is left at auto."""
        if self.mamba_ssm != "auto":
            return self.mamba_ssm
        return self.conv_state if default is None else default


def kv_torch_dtype(flag: str, model_dtype: str) -> str:
    return model_dtype if flag == "auto" else KV_CACHE_DTYPES[flag][0]


def resolve(config: ModelConfig, engine: EngineFlags) -> ModelDtypes:
    """All dtypes of a model under given flags."""
    model = _float_dtype("dtype", engine.dtype) if engine.dtype != "auto" else _checkpoint_dtype(config)
    flag = engine.kv_cache_dtype
    if flag == "auto":
        flag = checkpoint_kv_dtype(config)
    if flag != "auto" and flag not in KV_CACHE_DTYPES:
        accepted = ", ".join(("auto", *KV_CACHE_DTYPES))
        origin = (
            "--kv-cache-dtype"
            if engine.kv_cache_dtype != "auto"
            else f"{config.source}: the checkpoint's KV dtype"
        )
        raise ModelError(f"{origin} {flag}: its page layout is not known here; accepted: {accepted}")
    return ModelDtypes(
        model=model,
        kv_flag=flag,
        mamba_cache=_float_dtype("mamba-cache-dtype", engine.mamba_cache_dtype),
        mamba_ssm=_ssm_dtype(engine),
    )


def _ssm_dtype(engine: EngineFlags) -> str:
    asked = _float_dtype("mamba-ssm-cache-dtype", engine.mamba_ssm_cache_dtype)
    return engine.gpu.ssm_state_dtype or "auto" if asked == "auto" else asked


def _float_dtype(flag: str, value: str) -> str:
    if value == "auto":
        return value
    try:
        return FLOATS[value]
    except KeyError:
        raise ModelError(
            f"--{flag} {value}: not a float dtype; accepted: auto, {', '.join(FLOATS)}"
        ) from None


def _checkpoint_dtype(config: ModelConfig) -> str:
    """The config's; a float32 or unnamed one runs in the platform's preferred bfloat16."""
    for mapping in (config.text, config.outer):
        for key in ("dtype", "torch_dtype"):
            value = mapping.get(key)
            if value is None:
                continue
            if not isinstance(value, str) or value.removeprefix("torch.") not in FLOATS:
                raise config.wrong(key, value, f"one of {', '.join(FLOATS)}")
            name = FLOATS[value.removeprefix("torch.")]
            return "bfloat16" if name == "float32" else name
    return "bfloat16"


def checkpoint_kv_dtype(config: ModelConfig) -> str:
    """The KV dtype a quantised checkpoint asks for: ModelOpt names one, compressed-tensors describes an fp8 scheme."""
    quantization = config.outer.get("quantization_config") or config.text.get("quantization_config")
    if not isinstance(quantization, dict):
        return "auto"
    method = str(quantization.get("quant_method", ""))
    if method.startswith("modelopt"):
        inner = quantization.get("quantization", quantization)
        wish = (
            inner.get("kv_cache_scheme")
            or quantization.get("kv_cache_scheme")
            or inner.get("kv_cache_quant_algo")
            or quantization.get("kv_cache_quant_algo")
        )
        return MODELOPT_KV_DTYPES.get(_modelopt_algorithm(wish), "auto")
    if method == "compressed-tensors" and quantization.get("kv_cache_scheme") is not None:
        return "fp8"
    return "auto"


def _modelopt_algorithm(wish: object) -> str:
    if not isinstance(wish, dict):
        return str(wish).lower()
    if wish.get("type") == "float" and wish.get("num_bits") == 8 and wish.get("dynamic") is False:
        return "fp8"
    if wish.get("type") == "float" and wish.get("num_bits") == 4:
        return "nvfp4"
    return ""
