"""Mixtral: full attention, or one window for all layers.

vLLM 0.32 `model_executor/models/mixtral.py MixtralAttention`.
"""

from typing import ClassVar

from decodebench.models.attention import attention, model_window
from decodebench.models.base import Context, Defaults, Family, Layer


class Mixtral(Family):
    name = "Mixtral"
    architectures = ("MixtralForCausalLM",)
    model_types = ("mixtral",)
    defaults: ClassVar[Defaults] = {"max_position_embeddings": 131072, "num_key_value_heads": 8}

    def layers(self, context: Context) -> list[Layer]:
        window = model_window(context, types=None)
        return [
            attention(context, index, sliding_window=window)
            for index in range(context.config.integer("num_hidden_layers"))
        ]
