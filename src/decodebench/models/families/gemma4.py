"""Gemma 4: sliding and full layers differ in KV heads and in head size, and the last layers share earlier caches.

vLLM 0.32 `model_executor/models/gemma4.py Gemma4Attention`; per-layer heads as transformers 5.19 `Gemma4TextConfig`
sets them: full layers have `global_head_dim`, and `num_global_key_value_heads` where `attention_k_eq_v` is set (which
does not halve the cache: K and V are both stored).
"""

from typing import ClassVar

from decodebench.models.attention import attention, layer_types, window
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.errors import ModelError
from decodebench.models.pipeline import stage_of_layers

PATTERN = 6


class Gemma4(Family):
    name = "Gemma 4"
    architectures = (
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
    )
    model_types = ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "num_kv_shared_layers": 0,
        "attention_k_eq_v": False,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        types = self._types(config)
        first_shared = len(types) - (config.optional_integer("num_kv_shared_layers") or 0)
        self._check_sharing(context, types, first_shared)
        layers = []
        for index, kind in enumerate(types[:first_shared]):
            if kind == "sliding_attention":
                layers.append(attention(context, index, sliding_window=window(context)))
            elif kind == "full_attention":
                heads = (
                    config.optional_integer("num_global_key_value_heads")
                    if config.get("attention_k_eq_v")
                    else None
                )
                head = config.integer("global_head_dim")
                layers.append(attention(context, index, kv_heads=heads, head=head))
            else:
                raise self.unknown_layer_type(config, index, kind)
        return layers

    def _check_sharing(self, context: Context, types: list[str], first_shared: int) -> None:
        """A layer without a cache of its own reads the last one of its type, which must be on its pipeline stage."""
        if first_shared < 0:
            raise context.config.wrong(
                "num_kv_shared_layers", len(types) - first_shared, f"at most the {len(types)} layers"
            )
        stage = stage_of_layers(len(types), context.engine)
        for index in range(first_shared, len(types)):
            owner = max((i for i in range(first_shared) if types[i] == types[index]), default=index)
            if stage[owner] != stage[index]:
                raise ModelError(
                    f"--pipeline-parallel-size {context.engine.pipeline_parallel_size}: layer {index} reads the cache "
                    f"of layer {owner}, which is on another stage, and the engine refuses that "
                    "(`validate_kv_sharing_target`); use 1"
                )

    def _types(self, config: ModelConfig) -> list[str]:
        """As listed, else every sixth full; the last is full in any case."""
        count = config.integer("num_hidden_layers")
        types = layer_types(config) or [
            "sliding_attention" if (index + 1) % PATTERN else "full_attention" for index in range(count)
        ]
        return [*types[:-1], "full_attention"]
