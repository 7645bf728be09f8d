"""Jamba: seven Mamba-1 layers to one of full attention, so eight KV cache groups."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-jamba",
    summary="Mamba-1 and full attention, 7 : 1, 4 experts",
    groups=(*[Group("mamba")] * 7, Group("full_attention")),
    config={
        "architectures": ["JambaForCausalLM"],
        "model_type": "jamba",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 8,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 16,
        "use_mamba_kernels": False,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=4096, width=256),
    },
    dtype="float32",
    max_model_len=10240,
    fits=Fits(batch_size=32, context_len=8192),
    shims=("mamba1-decode-step", "mamba1-selective-scan", "mamba1-dense-rows"),
)
