"""MiniMax-M2: full attention everywhere. vLLM 0.32 `model_executor/models/minimax_m2.py MiniMaxM2Attention`."""

from typing import ClassVar

from decodebench.models.attention import attention
from decodebench.models.base import Context, Defaults, Family, Layer


class MiniMaxM2(Family):
    name = "MiniMax-M2"
    architectures = ("MiniMaxM2ForCausalLM",)
    model_types = ("minimax_m2",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 196608,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }

    def layers(self, context: Context) -> list[Layer]:
        return [attention(context, index) for index in range(context.config.integer("num_hidden_layers"))]
