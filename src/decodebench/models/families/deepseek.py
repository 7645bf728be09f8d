"""DeepSeek-V2, V3, R1, Kimi-K2 and GLM-4.7-Flash: latent (MLA) rows, the same on every tensor-parallel rank.

vLLM 0.32 `model_executor/models/deepseek_v2.py DeepseekV2MLAAttention`. The model types that run as MLA are listed in
`transformers_utils/model_arch_config_convertor.py is_deepseek_mla`.
"""

from typing import ClassVar

from decodebench.models.attention import latent
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.errors import UnknownModelError


class DeepSeek(Family):
    name = "DeepSeek-V2/V3"
    architectures = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM")
    model_types = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")
    defaults: ClassVar[Defaults] = {"qk_rope_head_dim": 64}

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        if config.get("kv_lora_rank") is None:
            raise UnknownModelError(
                f"{config.source}: kv_lora_rank is missing, so the engine would not run this model as MLA; "
                "its expanded K and V layout is not known here"
            )
        if config.get("index_topk") is not None:
            raise UnknownModelError(
                f"{config.source}: index_topk is set, but {config.model_type} is not a sparse-attention model type; "
                "expected deepseek_v32 or glm_moe_dsa"
            )
        return [latent(context, index) for index in range(config.integer("num_hidden_layers"))]

    def draft_layers(self, context: Context) -> list[Layer]:
        """MTP layers are decoder layers numbered after the model's last (`deepseek_mtp.py`)."""
        first = context.config.integer("num_hidden_layers")
        extra = context.config.optional_integer("num_nextn_predict_layers") or 0
        if not extra:
            return super().draft_layers(context)
        return [latent(context, index) for index in range(first, first + extra)]
