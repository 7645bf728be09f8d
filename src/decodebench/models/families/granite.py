"""Granite 4 hybrid: Mamba-2 layers and attention layers as `layer_types` lists them.

vLLM 0.32 `model_executor/models/granitemoehybrid.py`, which ignores `head_dim`.
"""

from typing import ClassVar

from decodebench.models.attention import attention, layer_types
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.state import Shapes, mamba2_layer, mamba2_shapes


class GraniteHybrid(Family):
    name = "Granite 4 hybrid"
    architectures = ("GraniteMoeHybridForCausalLM",)
    model_types = ("granitemoehybrid",)
    caches_all_states = True
    defaults: ClassVar[Defaults] = {
        "mamba_chunk_size": 256,
        "max_position_embeddings": 2048,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 128,
        "mamba_d_head": "auto",
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        count = config.integer("num_hidden_layers")
        types = (
            layer_types(config) or layer_types(config, "layers_block_type") or ["linear_attention"] * count
        )
        head = config.integer("hidden_size") // config.integer("num_attention_heads")
        layers = []
        for index, kind in enumerate(types):
            if kind == "linear_attention":
                layers.append(mamba2_layer(context, index, "mixer", self._shapes(context)))
            elif kind == "full_attention":
                layers.append(attention(context, index, head=head))
            else:
                raise self.unknown_layer_type(config, index, kind)
        return layers

    def _shapes(self, context: Context) -> Shapes:
        config = context.config
        intermediate = config.integer("mamba_expand") * config.integer("hidden_size")
        return mamba2_shapes(
            context,
            intermediate=intermediate,
            groups=config.integer("mamba_n_groups"),
            heads=config.integer("mamba_n_heads"),
            head=mamba_head(config, intermediate),
            state=config.integer("mamba_d_state"),
            kernel=config.integer("mamba_d_conv"),
        )


def mamba_head(config: ModelConfig, intermediate: int) -> int:
    """`mamba_d_head`, which may be the word auto."""
    if config.get("mamba_d_head") == "auto":
        return intermediate // config.integer("mamba_n_heads")
    return config.integer("mamba_d_head")
