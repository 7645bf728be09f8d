"""Qwen3-MoE at a size at which it matters which experts a step reads: about 1 GB, more than a processor's cache holds.

64 experts, 4 a token: a step of 16 requests that look alike reads a few experts of each layer, one of 16 different
requests most of them. The tiny models hide that, since all their experts stay in the cache.

Its weights have a larger range than the family's at this width (0.028), with which greedy answers repeat: 1 to 5
distinct tokens among 16 after prompts of 300 and 1,000 tokens, 6 to 11 at 0.045, 15 or 16 at 0.07.
"""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe

RECIPE = Recipe(
    name="small-moe",
    summary="full attention, 64 experts, about 1 GB of weights",
    groups=(Group("full_attention", layers=8),),
    config={
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        **VOCABULARY,
        "hidden_size": 1024,
        "intermediate_size": 1024,
        "moe_intermediate_size": 320,
        "num_hidden_layers": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_experts": 64,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": 0.07,
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=30, context_len=8192),
)
