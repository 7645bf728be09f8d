"""Llama and the models that vLLM runs as Llama: full attention everywhere, or as `layer_types` says.

vLLM 0.32 `model_executor/models/llama.py LlamaAttention`.
"""

from typing import ClassVar

from decodebench.models.attention import attention, layer_types, model_window, window
from decodebench.models.base import Context, Defaults, Family, Layer, Names


class Llama(Family):
    name = "Llama"
    architectures: ClassVar[Names] = ("LlamaForCausalLM", "LLaMAForCausalLM")
    model_types: ClassVar[Names] = ("llama",)
    defaults: ClassVar[Defaults] = {"max_position_embeddings": 2048}

    def layers(self, context: Context) -> list[Layer]:
        """Sliding where `layer_types` says so; without the list, `sliding_window` applies to all layers."""
        config = context.config
        types = layer_types(config)
        everywhere = model_window(context, types)
        layers = []
        for index in range(config.integer("num_hidden_layers")):
            kind = "full_attention" if types is None else types[index]
            if kind not in ("full_attention", "sliding_attention"):
                raise self.unknown_layer_type(config, index, kind)
            own = window(context) if kind == "sliding_attention" else everywhere
            layers.append(attention(context, index, sliding_window=own))
        return layers
