"""Llama 4: RoPE layers attend within chunks, NoPE layers to everything.

vLLM 0.32 `model_executor/models/llama4.py Llama4Attention`. `no_rope_layers` holds 0 for a NoPE layer; where absent or
empty, every `no_rope_layer_interval`-th layer is one (transformers 5.19 `Llama4TextConfig`).
"""

from typing import ClassVar

from decodebench.models.attention import attention, model_window
from decodebench.models.base import Context, Defaults, Family, Layer


class Llama4(Family):
    name = "Llama 4"
    architectures = ("Llama4ForCausalLM", "Llama4ForConditionalGeneration")
    model_types = ("llama4", "llama4_text")
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        count = config.integer("num_hidden_layers")
        interval = config.integer("no_rope_layer_interval")
        uses_rope = config.integers("no_rope_layers") or [
            int((index + 1) % interval != 0) for index in range(count)
        ]
        if len(uses_rope) < count:
            raise config.wrong(
                "no_rope_layers", f"{len(uses_rope)} entries", f"one for each of the {count} layers"
            )
        chunk = config.optional_integer("attention_chunk_size") or None
        types = ["chunked_attention" if rope else "full_attention" for rope in uses_rope[:count]]
        everywhere = model_window(context, types)
        return [
            attention(context, index, chunk=chunk if uses_rope[index] else None, sliding_window=everywhere)
            for index in range(count)
        ]
