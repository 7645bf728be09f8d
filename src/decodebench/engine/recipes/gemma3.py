"""Gemma 3: five sliding-window layers to one of full attention, so six KV cache groups that share one block pool."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

LAYER_TYPES = ["sliding_attention"] * 5 + ["full_attention"]

RECIPE = Recipe(
    name="tiny-gemma3",
    summary="sliding window 512 and full attention, 5 : 1",
    groups=(*[Group("sliding_window")] * 5, Group("full_attention")),
    config={
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "layer_types": LAYER_TYPES,
        "sliding_window": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "max_position_embeddings": 16384,
        "initializer_range": range_at_width(0.02, family_width=2560, width=256),
        "tie_word_embeddings": False,
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
)
