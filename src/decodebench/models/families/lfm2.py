"""LFM2, dense and MoE: short convolutions and attention layers.

vLLM 0.32 `model_executor/models/lfm2.py`, `lfm2_moe.py`, which ignore `head_dim`. The layers that attend are listed in
`layer_types` or `full_attn_idxs` (transformers 5.19 `Lfm2Config`).
"""

from typing import ClassVar

from decodebench.models.attention import attention, layer_types
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.state import short_conv_shapes, state_layer


class Lfm2(Family):
    name = "LFM2"
    architectures = ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM")
    model_types = ("lfm2", "lfm2_moe")
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 128000,
        "num_key_value_heads": 8,
        "conv_L_cache": 3,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        head = config.integer("hidden_size") // config.integer("num_attention_heads")
        channels = config.optional_integer("conv_dim") or config.integer("hidden_size")
        shapes = short_conv_shapes(context, channels=channels, kernel=config.integer("conv_L_cache"))
        layers = []
        for index, kind in enumerate(self._types(config)):
            if kind == "full_attention":
                layers.append(attention(context, index, head=head))
            elif kind == "conv":
                dtypes = (context.dtypes.conv_state,)
                layers.append(
                    state_layer(
                        context, index, "short_conv", mamba_type="short_conv", shapes=shapes, dtypes=dtypes
                    )
                )
            else:
                raise self.unknown_layer_type(config, index, kind)
        return layers

    def _types(self, config: ModelConfig) -> list[str]:
        count = config.integer("num_hidden_layers")
        listed = layer_types(config)
        if listed is not None:
            return listed
        attending = config.integers("full_attn_idxs")
        if attending is None:
            raise config.wrong("layer_types", None, "one type a layer, or full_attn_idxs")
        return ["full_attention" if index in attending else "conv" for index in range(count)]
