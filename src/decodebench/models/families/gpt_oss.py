"""gpt-oss: even layers slide, odd layers attend to all.

vLLM 0.32 `model_executor/models/gpt_oss.py OAIAttention`, which ignores `layer_types`.
"""

from typing import ClassVar

from decodebench.models.attention import attention, window
from decodebench.models.base import Context, Defaults, Family, Layer


class GptOss(Family):
    name = "gpt-oss"
    architectures = ("GptOssForCausalLM",)
    model_types = ("gpt_oss",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
    }

    def layers(self, context: Context) -> list[Layer]:
        return [
            attention(
                context, index, sliding_window=window(context) if index % 2 == 0 else None, module="attn.attn"
            )
            for index in range(context.config.integer("num_hidden_layers"))
        ]
