"""GLM-4 and GLM-4.5: full attention everywhere, MTP layers included.

vLLM 0.32 `model_executor/models/glm4.py`, `glm4_moe.py Glm4MoeAttention`, `glm4_moe_mtp.py`.
"""

from typing import ClassVar

from decodebench.models.attention import attention
from decodebench.models.base import Context, Defaults, Family, Layer


class Glm4(Family):
    name = "GLM-4"
    architectures = ("Glm4ForCausalLM", "Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration")
    model_types = ("glm4", "glm4_moe", "glm4v_moe", "glm4v_moe_text")
    defaults: ClassVar[Defaults] = {"max_position_embeddings": 131072}

    def layers(self, context: Context) -> list[Layer]:
        return [attention(context, index) for index in range(context.config.integer("num_hidden_layers"))]

    def draft_layers(self, context: Context) -> list[Layer]:
        first = context.config.integer("num_hidden_layers")
        extra = context.config.optional_integer("num_nextn_predict_layers") or 0
        if not extra:
            return super().draft_layers(context)
        return [attention(context, index) for index in range(first, first + extra)]
