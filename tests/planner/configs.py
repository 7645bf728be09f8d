"""Small configs of real families, and what they make: enough keys to size their caches, nothing else."""

from typing import Any


def llama(layers: int = 4, kv_heads: int = 8, head_dim: int = 128, max_len: int = 131072) -> dict[str, Any]:
    """Full attention: layers x 2 x kv_heads x head_dim x 2 B a token."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": max_len,
        "dtype": "bfloat16",
    }


def gemma3(sliding: int = 5, full: int = 1, window: int = 128) -> dict[str, Any]:
    """`sliding` sliding-window layers to `full` full ones."""
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 1024,
        "num_hidden_layers": sliding + full,
        "layer_types": ["sliding_attention"] * sliding + ["full_attention"] * full,
        "sliding_window": window,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
    }


def llama4() -> dict[str, Any]:
    """Three chunked local layers to one full."""
    return {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "no_rope_layers": [1, 1, 1, 0],
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
    }


def deepseek_v3(layers: int = 4) -> dict[str, Any]:
    """MLA: 576 elements a token and layer."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 1024,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
    }


def qwen3_next(layers: int = 4, value_heads: int = 32) -> dict[str, Any]:
    """Three gated-delta-net layers to one of full attention."""
    return {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": layers,
        "full_attention_interval": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_value_heads": value_heads,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 131072,
        "dtype": "bfloat16",
    }


def qwen35_27b() -> dict[str, Any]:
    """16 full and 48 GDN layers, 48 value heads, 16 key heads, head 128, float32 state."""
    text = qwen3_next(layers=64, value_heads=48)
    del text["architectures"]
    text |= {"model_type": "qwen3_5_text", "num_key_value_heads": 4, "mamba_ssm_dtype": "float32"}
    text["max_position_embeddings"] = 262144
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "dtype": "bfloat16",
    }
