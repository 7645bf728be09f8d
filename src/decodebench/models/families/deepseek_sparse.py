"""DeepSeek-V3.2 and GLM-5: latent rows plus, on layers that pick their own tokens, the rows of a sparse indexer.

vLLM 0.32 `models/deepseek_v32/attention.py DeepseekV32Attention`. Layers may reuse an earlier layer's picks
(`index_topk_pattern`, or `index_topk_freq` with `index_skip_topk_offset`); those own no indexer cache.
"""

from typing import ClassVar

from decodebench.models.attention import index_rows, latent
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig


class DeepSeekSparse(Family):
    name = "DeepSeek-V3.2/GLM-5"
    architectures = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
    model_types = ("deepseek_v32", "glm_moe_dsa")
    defaults: ClassVar[Defaults] = {
        "qk_rope_head_dim": 64,
        "index_head_dim": 128,
        "index_topk_freq": 1,
        "index_skip_topk_offset": 2,
    }

    def layers(self, context: Context) -> list[Layer]:
        count = context.config.integer("num_hidden_layers")
        return [
            layer
            for index in range(count)
            for layer in self._caches(context, index, picks_tokens(context.config, index), "self_attn")
        ]

    def draft_layers(self, context: Context) -> list[Layer]:
        """MTP layers always pick their own tokens."""
        first = context.config.integer("num_hidden_layers")
        extra = context.config.optional_integer("num_nextn_predict_layers") or 0
        if not extra:
            return super().draft_layers(context)
        return [
            layer
            for index in range(first, first + extra)
            for layer in self._caches(context, index, True, "self_attn")
        ]

    def _caches(self, context: Context, index: int, picks: bool, module: str) -> list[Layer]:
        rows = [index_rows(context, index, f"{module}.indexer.k_cache")] if picks else []
        return [*rows, latent(context, index, sparse=True, indexer=picks, module=f"{module}.attn")]


def picks_tokens(config: ModelConfig, index: int) -> bool:
    """Whether the layer runs an indexer of its own; `S` in a pattern marks one that shares."""
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        if not isinstance(pattern, str | list):
            raise config.wrong("index_topk_pattern", pattern, "one letter, F or S, a layer")
        return index >= len(pattern) or pattern[index] != "S"
    offset = config.optional_integer("index_skip_topk_offset") or 0
    return max(index - offset + 1, 0) % config.integer("index_topk_freq") == 0
