"""Qwen2 and Qwen3, dense and MoE: full attention; a window only for all layers at once.

vLLM 0.32 `model_executor/models/qwen2.py` (which refuses a window on some layers), `qwen3.py`, `qwen2_moe.py`,
`qwen3_moe.py`. transformers drops `sliding_window` unless `use_sliding_window` is set.
"""

from typing import ClassVar

from decodebench.models.attention import attention, head_size, layer_types, window
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.errors import UnknownModelError


class Qwen(Family):
    name = "Qwen2/Qwen3"
    architectures = (
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    )
    model_types = (
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen3_vl_text",
        "qwen3_vl_moe_text",
    )
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "max_window_layers": 28,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        sliding = window(context) if config.get("use_sliding_window") else None
        if sliding is not None and not self._slides_everywhere(config):
            sliding = None
        return [
            attention(context, index, sliding_window=sliding, head=self._head_size(config))
            for index in range(config.integer("num_hidden_layers"))
        ]

    def _slides_everywhere(self, config: ModelConfig) -> bool:
        """All layers or none; `Qwen2Model` refuses a mix unless `max_window_layers` covers the model."""
        types = layer_types(config)
        layers = config.integer("num_hidden_layers")
        if types is None:
            if config.text_model_type == "qwen3_moe":
                return True  # `Qwen3MoeConfig` has no layer types, so `sliding_window` reaches every layer
            first = config.optional_integer("max_window_layers") or 0
            types = ["full_attention" if index < first else "sliding_attention" for index in range(layers)]
        for index, kind in enumerate(types):
            if kind not in ("full_attention", "sliding_attention"):
                raise self.unknown_layer_type(config, index, kind)
        if len(set(types)) > 1 and config.optional_integer("max_window_layers") != layers:
            raise UnknownModelError(
                f"{config.source}: {types.count('sliding_attention')} of {layers} layers slide; the engine's Qwen2 and "
                "Qwen3 models refuse a window on some layers only"
            )
        return set(types) == {"sliding_attention"}

    def _head_size(self, config: ModelConfig) -> int:
        """Qwen2's attention ignores `head_dim`."""
        if "qwen3" in str(config.text_model_type or config.architecture).lower():
            return head_size(config)
        return config.integer("hidden_size") // config.integer("num_attention_heads")
