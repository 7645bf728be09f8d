"""Granite 4 hybrid with experts, about 1 GB: recurrent states and routing in one model, too large for a cache."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="small-hybrid",
    summary="Mamba-2 and full attention, 3 : 1, 64 experts, about 1 GB of weights",
    groups=(*[Group("mamba", layers=2)] * 3, Group("full_attention", layers=2)),
    config={
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        **VOCABULARY,
        "hidden_size": 1024,
        "intermediate_size": 256,
        "shared_intermediate_size": 512,
        "num_hidden_layers": 8,
        "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2,
        "num_local_experts": 64,
        "num_experts_per_tok": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "position_embedding_type": "nope",
        "mamba_n_heads": 32,
        "mamba_d_head": 64,
        "mamba_d_state": 64,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "attention_multiplier": 1 / 8,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=1536, width=1024),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
    shims=("mamba2-chunk-states", "mamba2-prefill-checkpoint"),
)
