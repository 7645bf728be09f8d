"""Attention layers of one tensor-parallel rank: KV heads divided or replicated, windows, latent rows."""

from functools import partial
from typing import Any

from decodebench.kv.specs import INDEXER, MLA, ChunkedLocal, FullAttention, SlidingWindow
from decodebench.models.backends import Kernel
from decodebench.models.base import Context, Layer, SpecBuilder
from decodebench.models.config_file import ModelConfig
from decodebench.models.errors import ConfigError, ModelError, indivisible

# Older spellings that transformers rewrites when it reads a config (5.19 `_LEGACY_LAYER_TYPE_REMAP`).
LEGACY_LAYER_TYPES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
}
# Bytes of one packed latent row (`layers/attention/mla_attention.py MLAAttention.get_kv_cache_spec`).
PACKED_MLA_ROW = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


def layer_types(config: ModelConfig, key: str = "layer_types") -> list[str] | None:
    """One name a layer, legacy spellings replaced; None where the config has none."""
    names = config.strings(key)
    if names is None:
        return None
    needed = config.integer("num_hidden_layers")
    if len(names) < needed:
        raise config.wrong(key, f"{len(names)} entries", f"one for each of the {needed} layers")
    return [LEGACY_LAYER_TYPES.get(name, name) for name in names[:needed]]


def kv_heads_per_rank(context: Context, total: int, attention_heads: int) -> int:
    """Divided among the ranks; with fewer heads than ranks each is replicated (`ModelConfig.get_num_kv_heads`)."""
    tp = context.engine.tensor_parallel_size
    if attention_heads % tp:
        raise indivisible(tp, attention_heads, "attention heads", context.config.source)
    larger, smaller = max(total, tp), min(total, tp)
    if larger % smaller:
        raise ModelError(
            f"--tensor-parallel-size {tp} and the {total} KV heads of {context.config.source} must divide one another"
        )
    return max(1, total // tp)


def head_size(config: ModelConfig) -> int:
    """`head_dim`, else hidden size over heads (`ModelArchConfigConvertorBase.get_head_size`)."""
    explicit = config.optional_integer("head_dim")
    if explicit:
        return explicit
    return _per_head(config, config.integer("hidden_size"))


def _per_head(config: ModelConfig, width: int) -> int:
    heads = config.integer("num_attention_heads")
    if width % heads:
        raise ConfigError(f"{config.source}: {width} is not a multiple of num_attention_heads {heads}")
    return width // heads


def model_window(context: Context, types: list[str] | None) -> int | None:
    """The window that every layer without one of its own takes.

    `engine/arg_utils.py`: only where the config lists no layer types, or all of them slide. 0 means none.
    """
    if types is not None and any(name != "sliding_attention" for name in types):
        return None
    return window(context)


def window(context: Context) -> int | None:
    """`sliding_window`, unless zero or switched off by flag (`config/model.py ModelConfig.__post_init__`)."""
    size = context.config.optional_integer("sliding_window")
    return size if size and not context.engine.disable_sliding_window else None


def attention(
    context: Context,
    index: int,
    *,
    sliding_window: int | None = None,
    chunk: int | None = None,
    kv_heads: int | None = None,
    head: int | None = None,
    module: str = "self_attn.attn",
) -> Layer:
    """A layer that stores K and V of every head: full, sliding (`sliding_window`) or chunked local (`chunk`)."""
    config = context.config
    attention_heads = config.integer("num_attention_heads")
    total = kv_heads or config.optional_integer("num_key_value_heads") or attention_heads
    size = head or head_size(config)
    common: dict[str, Any] = {
        "num_kv_heads": kv_heads_per_rank(context, total, attention_heads),
        "head_size": size,
        "dtype": context.dtypes.kv,
        "quant_mode": context.dtypes.kv_quant_mode,
    }
    build: SpecBuilder
    if chunk is not None:
        build = partial(ChunkedLocal, attention_chunk_size=chunk, **common)
    elif sliding_window is not None:
        build = partial(SlidingWindow, sliding_window=sliding_window, **common)
    else:
        build = partial(FullAttention, **common)
    return Layer(
        index=index,
        name=context.layer_name(index, module),
        kernel="dense",
        build=build,
        head_size=size,
        queries_per_kv_head=attention_heads // context.engine.tensor_parallel_size // common["num_kv_heads"],
    )


def latent(
    context: Context,
    index: int,
    *,
    sparse: bool = False,
    indexer: bool = False,
    module: str = "self_attn.attn",
) -> Layer:
    """An MLA layer: one latent row a token, the same on every rank."""
    config = context.config
    kv_heads_per_rank(context, 1, config.integer("num_attention_heads"))
    size = config.integer("kv_lora_rank") + config.integer("qk_rope_head_dim")
    kernel: Kernel = "sparse_mla" if sparse else "mla"
    flag = context.dtypes.kv_flag
    backend = context.engine.gpu.backend(kernel, flag, size, asked=context.engine.attention_backend)
    if (
        backend.name == "FLASHMLA_SPARSE" and flag.startswith("fp8")
    ) or backend.name == "FLASHINFER_MLA_SPARSE_SM120":
        flag = "fp8_ds_mla"  # `mla_attention.py _canonicalize_sparse_mla_kv_cache_dtype`
    packed = PACKED_MLA_ROW.get(flag)
    build = partial(
        MLA,
        num_kv_heads=1,
        max_tp_shards=1,
        head_size=size,
        dtype="uint8" if packed else context.dtypes.kv,
        quant_mode="fp8_per_tensor" if flag == "fp8_ds_mla" else context.dtypes.kv_quant_mode,
        cache_dtype_str=flag,
        state_content_bytes=packed,
        is_index_group_leader=indexer,
    )
    return Layer(
        index=index, name=context.layer_name(index, module), kernel=kernel, build=build, head_size=size
    )


def index_rows(context: Context, index: int, module: str = "self_attn.indexer.k_cache") -> Layer:
    """The sparse indexer's keys: fp8 values plus one fp32 scale for each 128 of them, as bytes.

    `models/deepseek_v32/attention.py DeepseekV32Indexer`: 128 + 128 // 128 * 4 = 132 B a token.
    """
    head = context.config.integer("index_head_dim")
    build = partial(
        MLA,
        num_kv_heads=1,
        max_tp_shards=1,
        head_size=head + head // 128 * 4,
        dtype="uint8",
        cache_role=INDEXER,
    )
    return Layer(index=index, name=context.layer_name(index, module), kernel="indexer", build=build)
