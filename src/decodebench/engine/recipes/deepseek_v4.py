"""DeepSeek-V4: latent pages, compressed 4-fold and 128-fold, an indexer and compressor states; six KV cache groups.

What its layers mix: sliding-window latents in every layer; beside them the whole context compressed 128-fold (layer 3)
or 4-fold with a learned choice of 512 entries (layers 2 and 4). Rows are packed: fp8 numbers, bf16 rotary part, scales.
"""

from typing import Any

from decodebench.engine.recipes.base import VOCABULARY, Fits, Group, Recipe
from decodebench.engine.recipes.weights import range_at_width

EXPERTS = 256
EXPERTS_PER_TOKEN = 6


def finish(tensors: dict[str, Any]) -> dict[str, Any]:
    """Bring what transformers 5.19 writes under the names of the published checkpoint, as vLLM's loader expects them.

    It leaves the prefix of the class on, writes `kv_norm` as `norm`, and leaves the table of the hash-routed layer (one
    row of distinct experts a token) at zero, with which every token would go to expert 0 six times.
    """
    import torch

    named = {_published_name(name): tensor for name, tensor in tensors.items()}
    for name, table in named.items():
        if name.endswith("tid2eid"):
            draw = torch.Generator().manual_seed(0)
            chosen = torch.rand(table.shape[0], EXPERTS, generator=draw).topk(EXPERTS_PER_TOKEN).indices
            named[name] = chosen.to(torch.int32)
    return named


def _published_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "embed.weight"
    bare = name.removeprefix("model.")
    return bare.replace("hc_head.hc_", "hc_head_").replace(".attn.norm.", ".attn.kv_norm.")


RECIPE = Recipe(
    name="tiny-deepseek-v4",
    summary="MLA compressed 4-fold and 128-fold, indexer, sliding window 128, 256 experts",
    groups=(
        Group("sliding_window_mla", layers=2),
        Group("sliding_window_mla", layers=2),
        Group("sliding_window_mla", layers=1),
        Group("mla_attention", layers=5),
        Group("sliding_window_mla", layers=4),
        Group("sliding_window_mla", layers=1),
    ),
    config={
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        **VOCABULARY,
        "hidden_size": 512,
        "moe_intermediate_size": 64,
        "num_hidden_layers": 5,
        "compress_ratios": [0, 0, 4, 128, 4],
        "sliding_window": 128,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 256,
        "o_lora_rank": 64,
        "o_groups": 8,
        "index_n_heads": 8,
        "index_head_dim": 128,
        "index_topk": 512,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "num_hash_layers": 1,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "swiglu_limit": 10.0,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_theta": 10000,
        "compress_rope_theta": 160000,
        "max_position_embeddings": 16384,
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 0,
        "initializer_range": range_at_width(0.02, family_width=4096, width=512),
    },
    dtype="bfloat16",
    max_model_len=10240,
    fits=Fits(batch_size=32, context_len=8192),
    block_size=256,
    cpu_env={"VLLM_USE_V2_MODEL_RUNNER": "0", "TRITON_INTERPRET": "1"},
    shims=("triton-interpreted", "deepseek-v4-tile-scheduler"),
    finish=finish,
)
