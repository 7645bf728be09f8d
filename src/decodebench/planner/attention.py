"""What of `--attention-config` shapes the cache: the backend, and the dtype of the sparse indexer's rows.

vLLM 0.32 `config/attention.py AttentionConfig`; the flag `use_fp4_indexer_cache` of earlier versions is read as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from decodebench.errors import UserError

INDEXER_DTYPES = ("auto", "fp8", "mxfp4")


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """`backend` None leaves it to the engine."""

    backend: str | None = None
    indexer_kv_dtype: Literal["fp8", "mxfp4"] = "fp8"


def read_attention(config: Mapping[str, Any] | None) -> AttentionChoice:
    """From the object; its other keys choose kernels that read the same cache."""
    if config is None:
        return AttentionChoice()
    if not isinstance(config, Mapping):
        raise UserError(f"--attention-config must be a JSON object, not {type(config).__name__}")
    backend = config.get("backend")
    if backend is not None and not isinstance(backend, str):
        raise UserError(f"--attention-config: backend is {backend!r}", "give the name of a backend, or null")
    dtype = config.get("indexer_kv_dtype", "auto")
    if dtype not in INDEXER_DTYPES:
        raise UserError(
            f"--attention-config: indexer_kv_dtype {dtype!r} is not known here",
            f"accepted: {', '.join(INDEXER_DTYPES)}",
        )
    mxfp4 = dtype == "mxfp4" or str(config.get("use_fp4_indexer_cache")).lower() == "true"
    return AttentionChoice(backend, "mxfp4" if mxfp4 else "fp8")
