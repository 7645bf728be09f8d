"""Llama: full attention in every layer, one KV cache group."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-llama",
    summary="full attention only",
    groups=(Group("full_attention", layers=4),),
    config={
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 16384,
        "initializer_range": range_at_width(0.02, family_width=4096, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=48, context_len=8192),
)
