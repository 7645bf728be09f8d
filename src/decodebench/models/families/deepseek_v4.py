"""DeepSeek-V4: up to five caches a layer.

Sliding-window rows everywhere; compressed rows, their compressor's state and, at 4 tokens a row, a compressed indexer.

vLLM 0.32 `models/deepseek_v4/attention.py`, `compressor.py`, `v1/attention/backends/mla/sparse_swa.py`. The packed
`fp8_ds_mla` row is 448 B fp8 + 128 B bf16 RoPE + 8 B scales = 584 B. State blocks hold 4 or 8 tokens, so that their
pages are as large as those of the rows they share a pool with.
"""

from functools import partial
from typing import Any, ClassVar

from decodebench.kv.specs import MLA, SlidingWindowMLA
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.errors import ModelError

SLIDING_WINDOW_BLOCK = 64  # `DeepseekV4SWACache` block_size
STATE_BLOCKS = {4: 4, 128: 8}  # compress ratio -> tokens a block, `CompressorStateCache`
PACKED_ROW = 584
PACKED_ALIGNMENT = 576
PLAIN_ALIGNMENT = 512
RATIO_OF_LAYER_TYPE = {
    "sliding_attention": 1,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}


class DeepSeekV4(Family):
    name = "DeepSeek-V4"
    architectures = ("DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration")
    model_types = ("deepseek_v4",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 1048576,
        "head_dim": 512,
        "index_head_dim": 128,
        "sliding_window": 128,
    }

    def layers(self, context: Context) -> list[Layer]:
        rows = _Rows(context)
        ratios = self._ratios(context.config)
        return [layer for index, ratio in enumerate(ratios) for layer in rows.caches(index, ratio, "attn")]

    def draft_layers(self, context: Context) -> list[Layer]:
        """MTP layers compress nothing: one sliding-window cache each."""
        first = context.config.integer("num_hidden_layers")
        extra = context.config.optional_integer("num_nextn_predict_layers") or 0
        if not extra:
            return super().draft_layers(context)
        rows = _Rows(context)
        return [layer for index in range(first, first + extra) for layer in rows.caches(index, 1, "attn")]

    def _ratios(self, config: ModelConfig) -> list[int]:
        """Tokens a compressed row, one a layer: from `compress_ratios` (0: none), else from `layer_types`."""
        count = config.integer("num_hidden_layers")
        listed = config.integers("compress_ratios")
        if listed is None:
            types = config.strings("layer_types")
            if types is None:
                raise config.wrong("compress_ratios", None, "one ratio a layer, 0, 4 or 128")
            for index, kind in enumerate(types[:count]):
                if kind not in RATIO_OF_LAYER_TYPE:
                    raise self.unknown_layer_type(config, index, kind)
            listed = [RATIO_OF_LAYER_TYPE[kind] for kind in types]
        if len(listed) < count:
            raise config.wrong(
                "compress_ratios", f"{len(listed)} entries", f"one for each of the {count} layers"
            )
        ratios = [max(1, ratio) for ratio in listed[:count]]
        for index, ratio in enumerate(ratios):
            if ratio not in (1, *STATE_BLOCKS):
                raise self.unknown_layer_type(config, index, f"compress ratio {ratio}")
        return ratios


class _Rows:
    """Builds the caches of a layer; packed (`fp8_ds_mla`) or plain rows are one choice for the whole model."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.head = context.config.integer("head_dim")
        flag = context.dtypes.kv_flag
        backend = context.engine.gpu.backend(
            "v4_mla", flag, self.head, asked=context.engine.attention_backend
        )
        # Only the FlashInfer class stores plain rows, and on SM120 not even that.
        self.packed = backend.name != "FLASHINFER_MLA_SPARSE_DSV4" or context.engine.gpu.major == 12
        if self.packed and flag != "auto" and not flag.startswith("fp8"):
            raise ModelError(
                f"--kv-cache-dtype {flag}: {backend.name} stores DeepSeek-V4 rows as fp8_ds_mla; accepted: auto, fp8"
            )
        self.alignment = PACKED_ALIGNMENT if self.packed else PLAIN_ALIGNMENT
        quantized = flag.startswith("fp8")
        self.row: dict[str, Any] = {
            "num_kv_heads": 1,
            "max_tp_shards": 1,
            "head_size": self.head,
            "dtype": "uint8" if self.packed else "float8_e4m3fn" if quantized else "bfloat16",
            "cache_dtype_str": "fp8_ds_mla" if self.packed else flag,
            "state_content_bytes": PACKED_ROW if self.packed else None,
            "alignment": self.alignment,
            "model_version": "deepseek_v4",
            "quant_mode": "fp8_per_tensor" if self.packed or quantized else "none",
        }

    def caches(self, index: int, ratio: int, module: str) -> list[Layer]:
        """In registration order: indexer and its compressor, window rows, compressed rows, compressor state."""
        layers = []
        if ratio == 4:
            layers += [self._index_rows(index, ratio, module)]
            layers += [
                self._state(index, ratio, f"{module}.indexer", self.context.config.integer("index_head_dim"))
            ]
        layers += [self._window_rows(index, module)]
        if ratio > 1:
            layers += [
                self._compressed_rows(index, ratio, module),
                self._state(index, ratio, module, self.head),
            ]
        return layers

    def _window_rows(self, index: int, module: str) -> Layer:
        window = self.context.config.integer("sliding_window")
        return Layer(
            index=index,
            name=self.context.layer_name(index, f"{module}.swa_cache"),
            kernel="v4_sliding_window",
            build=partial(SlidingWindowMLA, sliding_window=window, **self.row),
            own_block_size=SLIDING_WINDOW_BLOCK,
        )

    def _compressed_rows(self, index: int, ratio: int, module: str) -> Layer:
        return Layer(
            index=index,
            name=self.context.layer_name(index, module),
            kernel="v4_mla",
            build=partial(MLA, tokens_per_state=ratio, **self.row),
            head_size=self.head,
        )

    def _index_rows(self, index: int, ratio: int, module: str) -> Layer:
        """fp8 keys with a 4 B scale for each 128, or MXFP4 keys with a scale byte for each 32."""
        head = self.context.config.integer("index_head_dim")
        mxfp4 = self.context.engine.indexer_kv_dtype == "mxfp4"
        return Layer(
            index=index,
            name=self.context.layer_name(index, f"{module}.indexer.k_cache"),
            kernel="v4_indexer",
            build=partial(
                MLA,
                num_kv_heads=1,
                max_tp_shards=1,
                head_size=head // 2 + head // 32 if mxfp4 else head + head // 128 * 4,
                dtype="uint8",
                tokens_per_state=ratio,
                alignment=self.alignment,
            ),
        )

    def _state(self, index: int, ratio: int, module: str, head: int) -> Layer:
        """The fp32 KV and score sums of tokens not yet compressed; at ratio 4 successive rows overlap, so twice."""
        overlap = 2 if ratio == 4 else 1
        return Layer(
            index=index,
            name=self.context.layer_name(index, f"{module}.compressor.state_cache"),
            kernel="v4_compressor",
            build=partial(
                SlidingWindowMLA,
                num_kv_heads=1,
                max_tp_shards=1,
                head_size=2 * overlap * head,
                dtype="float32",
                sliding_window=overlap * ratio,
                alignment=self.alignment,
            ),
            own_block_size=STATE_BLOCKS[ratio],
        )
