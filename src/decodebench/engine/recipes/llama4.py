"""Llama 4: three layers of chunked local attention to one of full attention, one expert a token.

vLLM turns the hybrid manager off for chunked local attention unless told otherwise by
`VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=1` (0.32, `config/vllm.py`).
"""

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

RECIPE = Recipe(
    name="tiny-llama4",
    summary="chunked attention 1,024 and full attention, 3 : 1, 8 experts",
    groups=(*[Group("chunked_local_attention")] * 3, Group("full_attention")),
    config={
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        **VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 256,
        "intermediate_size_mlp": 512,
        "num_hidden_layers": 4,
        "attention_chunk_size": 1024,
        "interleave_moe_layer_step": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": 1,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "initializer_range": range_at_width(0.02, family_width=5120, width=256),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=64, context_len=8192),
    common_env={"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1"},
)
