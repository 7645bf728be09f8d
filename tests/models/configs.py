"""Small configs of several families, as dicts; tests change what they are about."""

from typing import Any

from decodebench.models import EngineFlags, ModelSpecs, describe, parse

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_SPARSE: dict[str, Any] = {
    **DEEPSEEK,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_head_dim": 128,
    "index_topk": 2048,
}
DEEPSEEK_V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "head_dim": 512,
    "index_head_dim": 128,
    "compress_ratios": [0, 4, 128, 4, 0],
    "num_nextn_predict_layers": 1,
    "sliding_window": 128,
    "max_position_embeddings": 65536,
    "torch_dtype": "bfloat16",
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
NEMOTRON_H: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "hidden_size": 1024,
    "num_hidden_layers": 6,
    "hybrid_override_pattern": "M-M*ME",
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "mamba_num_heads": 32,
    "mamba_head_dim": 64,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
ZAMBA2: dict[str, Any] = {
    "architectures": ["Zamba2ForCausalLM"],
    "model_type": "zamba2",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
    "n_mamba_heads": 32,
    "torch_dtype": "bfloat16",
}


def specs_of(config: dict[str, Any], **flags: Any) -> ModelSpecs:
    return describe(parse(config, source="config.json"), EngineFlags(**flags))
