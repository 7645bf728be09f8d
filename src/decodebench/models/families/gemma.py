"""Gemma 1, 2 and 3: sliding and full layers alternate in a fixed pattern.

vLLM 0.32 `model_executor/models/gemma2.py`, `gemma3.py`. Patterns and head counts that configs omit are those of
transformers 5.19 `Gemma2Config` (every second layer full) and `Gemma3TextConfig` (every sixth).
"""

from typing import ClassVar

from decodebench.models.attention import attention, layer_types, window
from decodebench.models.base import Context, Defaults, Family, Layer, Names


class Gemma(Family):
    name = "Gemma"
    architectures: ClassVar[Names] = ("GemmaForCausalLM",)
    model_types: ClassVar[Names] = ("gemma",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 8192,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 256,
    }

    def layers(self, context: Context) -> list[Layer]:
        return [attention(context, index) for index in range(context.config.integer("num_hidden_layers"))]


class Gemma2(Family):
    name = "Gemma 2"
    architectures: ClassVar[Names] = ("Gemma2ForCausalLM",)
    model_types: ClassVar[Names] = ("gemma2",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 8192,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        pattern = config.integer("sliding_window_pattern")
        types = layer_types(config) or [
            "full_attention" if (index + 1) % pattern == 0 else "sliding_attention"
            for index in range(config.integer("num_hidden_layers"))
        ]
        layers = []
        for index, kind in enumerate(types):
            if kind not in ("full_attention", "sliding_attention"):
                raise self.unknown_layer_type(config, index, kind)
            sliding = window(context) if kind == "sliding_attention" else None
            layers.append(attention(context, index, sliding_window=sliding))
        return layers


class Gemma3(Gemma2):
    name = "Gemma 3"
    architectures: ClassVar[Names] = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    model_types: ClassVar[Names] = ("gemma3", "gemma3_text")
    defaults: ClassVar[Defaults] = {
        **Gemma2.defaults,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
    }
