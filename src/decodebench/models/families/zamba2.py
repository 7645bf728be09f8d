"""Zamba2: Mamba-2 everywhere; hybrid layers add a shared attention block over twice the hidden size.

vLLM 0.32 `model_executor/models/zamba2.py`. The blocks' weights are shared, their caches are not: each hybrid layer has
one, with as many KV heads as attention heads. Head sizes as transformers 5.19 `Zamba2Config` derives them. The model
does not support pipeline parallelism.
"""

from typing import ClassVar

from decodebench.models.attention import attention
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.state import mamba2_layer, mamba2_shapes

DEFAULT_PATTERN = (
    ["mamba"]
    + (["mamba"] * 5 + ["hybrid"]) * 7
    + ["mamba"] * 4
    + ["hybrid"]
    + ["mamba"] * 3
    + ["hybrid"]
    + ["mamba"] * 2
)


class Zamba2(Family):
    name = "Zamba2"
    architectures = ("Zamba2ForCausalLM",)
    model_types = ("zamba2",)
    pipeline_parallel = False
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 4096,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
        "num_mem_blocks": 1,
    }

    def num_layers(self, config: ModelConfig) -> int:
        return len(self._types(config))

    def layers(self, context: Context) -> list[Layer]:
        """Attention caches first: the shared blocks are built before the layers."""
        config = context.config
        types = self._types(config)
        hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
        mamba_width = config.integer("mamba_expand") * hidden
        shapes = mamba2_shapes(
            context,
            intermediate=mamba_width,
            groups=config.integer("mamba_ngroups"),
            heads=config.integer("n_mamba_heads"),
            head=mamba_width // config.integer("n_mamba_heads"),
            state=config.integer("mamba_d_state"),
            kernel=config.integer("mamba_d_conv"),
        )
        hybrid = [index for index, kind in enumerate(types) if kind == "hybrid"]
        # The engine numbers the attention caches before the Mamba layers ("tdoublep" note in `Zamba2Model`).
        caches = [
            attention(
                context, index, kv_heads=heads, head=2 * hidden // heads, module="shared_attention.attn"
            )
            for index in hybrid
        ]
        return [
            *caches,
            *(mamba2_layer(context, index, "mamba.mixer", shapes) for index in range(len(types))),
        ]

    def _types(self, config: ModelConfig) -> list[str]:
        types = config.strings("layers_block_type") or DEFAULT_PATTERN
        for index, kind in enumerate(types):
            if kind not in ("mamba", "linear_attention", "hybrid"):
                raise self.unknown_layer_type(config, index, kind)
        return types
