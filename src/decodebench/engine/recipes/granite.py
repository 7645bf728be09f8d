"""Granite 4 hybrid: three Mamba-2 layers to one of full attention; states and attention pages share one block pool."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-granite",
    summary="Mamba-2 and full attention, 3 : 1",
    groups=(*[Group("mamba")] * 3, Group("full_attention")),
    config={
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "shared_intermediate_size": 512,
        "num_hidden_layers": 4,
        "layer_types": ["mamba", "mamba", "mamba", "attention"],
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "position_embedding_type": "nope",
        "mamba_n_heads": 8,
        "mamba_d_head": 64,
        "mamba_d_state": 64,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "attention_multiplier": 1 / 8,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=1536, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
    shims=("mamba2-chunk-states", "mamba2-prefill-checkpoint"),
)
