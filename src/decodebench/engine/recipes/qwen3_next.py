"""Qwen3-Next: three Gated DeltaNet (GDN) layers to one of full attention, experts in every layer."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-qwen3-next",
    summary="Gated DeltaNet and full attention, 3 : 1, 16 experts",
    groups=(*[Group("mamba")] * 3, Group("full_attention")),
    config={
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "num_hidden_layers": 4,
        "full_attention_interval": 4,
        "decoder_sparse_step": 1,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=2048, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
)
