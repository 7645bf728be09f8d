"""DeepSeek-V2/V3: multi-head latent attention (MLA), one latent of 576 numbers a token and layer, one group."""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-deepseek-v2",
    summary="MLA, 16 experts",
    groups=(Group("mla_attention", layers=3),),
    config={
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 16,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=5120, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=32, context_len=8192),
)
