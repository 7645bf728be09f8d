"""Zamba2: Mamba-2 everywhere; hybrid layers add a shared attention block over twice the hidden size.

vLLM 0.32 `model_executor/models/zamba2.py`. The blocks' weights are shared, their caches are not: each hybrid layer has
one, with as many KV heads as attention heads. Head sizes as transformers 5.19 `Zamba2Config` derives them. The model
does not support pipeline parallelism.
"""

from dataclasses import replace
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
    caches_all_states = True
    defaults: ClassVar[Defaults] = {
        "chunk_size": 256,
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
        caches = [
            replace(attention(context, index, kv_heads=heads, head=2 * hidden // heads), name=name)
            for index, name in zip(hybrid, self._attention_names(config, len(hybrid)), strict=True)
        ]
        # NOTE: the engine counts the state halves on from the attention caches, to keep names apart.
        return caches + [
            replace(mamba2_layer(context, index, "mixer", shapes), name=f"{len(hybrid) + index}.mixer")
            for index in range(len(types))
        ]

    def _attention_names(self, config: ModelConfig, hybrid_layers: int) -> list[str]:
        """Shared blocks take the hybrid layers in turn and number their caches from a start of their own each."""
        blocks = config.integer("num_mem_blocks")
        numbers: list[int] = []
        for block in range(min(blocks, hybrid_layers)):
            start = block * (hybrid_layers + blocks - 1) // blocks
            numbers += range(start, start + len(range(block, hybrid_layers, blocks)))
        return [f"model.attn.{number}" for number in numbers]

    def _types(self, config: ModelConfig) -> list[str]:
        types = config.strings("layers_block_type") or DEFAULT_PATTERN
        for index, kind in enumerate(types):
            if kind not in ("mamba", "linear_attention", "hybrid"):
                raise self.unknown_layer_type(config, index, kind)
        return types
