"""Mistral and Ministral: Llama's layers; a `sliding_window` without `layer_types` makes every layer slide.

vLLM 0.32 `model_executor/models/mistral.py`. Defaults of transformers 5.19 `MistralConfig` (4,096-token window) and
`Ministral3Config` (none).
"""

from typing import ClassVar

from decodebench.models.base import Defaults
from decodebench.models.families.llama import Llama


class Mistral(Llama):
    name = "Mistral"
    architectures = ("MistralForCausalLM",)
    model_types = ("mistral",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    }


class Ministral3(Llama):
    name = "Ministral 3"
    architectures = ("Ministral3ForCausalLM",)
    model_types = ("ministral3",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 262144,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
