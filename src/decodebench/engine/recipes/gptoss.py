"""gpt-oss: sliding window and full attention by turns, attention sinks, experts in every layer; two KV cache groups."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-gptoss",
    summary="sliding window 128 and full attention by turns, 16 experts",
    groups=(
        Group("sliding_window", layers=2),
        Group("full_attention", layers=2),
    ),
    config={
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
        "max_position_embeddings": 16384,
        "initializer_range": range_at_width(0.02, family_width=2880, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
)
