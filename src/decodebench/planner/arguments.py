"""The engine options that a plan depends on, under vLLM's names, and how each is read from text.

One table serves the library call (keyword arguments), our own command line and a pasted `vllm serve` line.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from decodebench.errors import UserError
from decodebench.kv.units import parse_bytes, parse_count


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """What the user told the engine; None is vLLM's own default. Field names are vLLM's options."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool | None = None  # moves weights, not the cache
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    disable_sliding_window: bool | None = None
    kv_transfer_config: Mapping[str, Any] | str | None = None
    kv_offloading_size: str | float | None = None
    kv_offloading_backend: str = "native"
    speculative_config: Mapping[str, Any] | str | None = None
    attention_backend: str | None = None
    attention_config: Mapping[str, Any] | None = None  # of it `backend` and `indexer_kv_dtype` are read
    gdn_prefill_backend: str = "auto"
    mamba_block_size: int | None = None
    mamba_cache_mode: str = "none"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None

    @property
    def asked_hybrid_manager(self) -> bool | None:
        """True: asked on, False: asked off, None: no preference."""
        off = self.disable_hybrid_kv_cache_manager
        return None if off is None else not off


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its field, its short names, and the reader of its text (None: a switch with a `--no-` form)."""

    field: str
    read: Callable[[str, str], Any] | None
    help: str
    short: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "--" + self.field.replace("_", "-")


def _positive(text: str, field: str) -> int:
    value = parse_count(text, field)
    if value < 1:
        raise UserError(f"{field} {text}: must be at least 1", "write a whole number above 0")
    return value


def _length(text: str, field: str) -> int | None:
    """`--max-model-len`, where -1 and auto mean: as long as the memory allows."""
    if text.strip().lower() in ("-1", "auto"):
        raise UserError(
            f"{field} {text}: the engine then takes the longest that fits",
            "give the length that you want planned",
        )
    return _positive(text, field)


def _object(text: str, field: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{field} is not JSON: {error}", "quote the whole object with single quotes"
        ) from None
    if not isinstance(value, dict):
        raise UserError(f"{field} must be a JSON object, not {type(value).__name__}")
    return value


def _text(text: str, field: str) -> str:
    return text


OPTIONS = (
    Option("tensor_parallel_size", _positive, "ranks that share each layer", ("-tp",)),
    Option("pipeline_parallel_size", _positive, "stages of layers", ("-pp",)),
    Option("data_parallel_size", _positive, "engines side by side, each with a pool of its own", ("-dp",)),
    Option("decode_context_parallel_size", _positive, "ranks that share the context", ("-dcp",)),
    Option("enable_expert_parallel", None, "accepted; it does not change the cache", ("-ep",)),
    Option("dtype", _text, "dtype of the model"),
    Option("kv_cache_dtype", _text, "dtype of the KV cache, such as fp8"),
    Option("block_size", _positive, "tokens a block"),
    Option("max_model_len", _length, "longest context"),
    Option("max_num_seqs", _positive, "most requests in one step"),
    Option("max_num_batched_tokens", _positive, "most tokens in one step"),
    Option("enable_prefix_caching", None, "reuse of common prefixes (vLLM's default: on)"),
    Option("enable_chunked_prefill", None, "prefill in chunks (vLLM's default: on)"),
    Option("async_scheduling", None, "schedule ahead of the results (vLLM's default on a GPU: on)"),
    Option(
        "disable_hybrid_kv_cache_manager",
        None,
        "switch the hybrid KV cache manager off, or (--no-) demand it",
    ),
    Option("disable_sliding_window", None, "cap the context at the window"),
    Option("kv_transfer_config", _text, "JSON: the KV connector"),
    Option(
        "kv_offloading_size", _text, "GiB of host memory to offload to, by a connector that the engine adds"
    ),
    Option("kv_offloading_backend", _text, "native or lmcache"),
    Option("speculative_config", _object, "JSON: speculative decoding", ("-sc",)),
    Option("attention_backend", _text, "attention backend by vLLM's name"),
    Option("attention_config", _object, "JSON: its backend and indexer_kv_dtype are read", ("-ac",)),
    Option("gdn_prefill_backend", _text, "kernel that prefills GDN layers: auto, triton or flashinfer"),
    Option("mamba_cache_mode", _text, "which states are cached: none, align or all"),
    Option("mamba_block_size", _positive, "tokens a state block stands for"),
    Option("mamba_cache_dtype", _text, "dtype of the state"),
    Option("mamba_ssm_cache_dtype", _text, "dtype of the SSM state"),
    Option("num_gpu_blocks_override", _positive, "blocks of the pool, instead of memory"),
    Option("kv_cache_memory_bytes", parse_bytes, "memory for the KV cache per GPU, as vLLM's own flag"),
)

UNREAD = {
    "--additional-config": "backends that a model takes from it",
    "--all2all-backend": "the default of --max-num-batched-tokens",
    "--config": "whatever the file sets",
    "--hf-config-path": "the config",
    "--hf-overrides": "the config",
    "--kv-cache-dtype-skip-layers": "the dtype of single layers",
    "--performance-mode": "the defaults of --max-num-seqs and --max-num-batched-tokens",
    "--prefill-context-parallel-size": "the size of blocks",
    "--watermark": "the blocks kept free at admission",
}
"""Options of vLLM that are not read although they may change the answer, and what of it."""

OBJECTS = ("kv_transfer_config", "speculative_config", "attention_config")
"""Fields that are objects, of which a pasted line may set single keys."""

OPTION_OF = {option.name: option for option in OPTIONS}


def read_option(option: Option, text: str | None) -> Any:
    """The value of one option from its text; None is a switch that stands alone."""
    if option.read is None:
        if text is not None:
            raise UserError(f"{option.name} {text}: it takes no value")
        return True
    if text is None:
        raise UserError(f"{option.name} needs a value", option.help)
    return option.read(text, option.name)


def read_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a library call: text is read as on the command line, other values are checked for kind."""
    by_field = {option.field: option for option in OPTIONS}
    read = {}
    for field, value in given.items():
        option = by_field.get(field)
        if option is None:
            raise UserError(f"{field!r} is no argument of a plan", f"accepted: {', '.join(sorted(by_field))}")
        if isinstance(value, str) and option.read is not None:
            value = option.read(value, option.name)
        elif option.read in (_positive, _length, parse_bytes) and not is_count_or_none(value):
            raise UserError(f"{option.name} is {value!r}", "give an integer of at least 1")
        elif option.read is None and not isinstance(value, bool | None):
            raise UserError(f"{option.name} is {value!r}", "give True, False or None")
        read[field] = value
    return read


def is_count_or_none(value: object) -> bool:
    """Whether a value is None or an integer of at least 1; True and False are no integers."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
