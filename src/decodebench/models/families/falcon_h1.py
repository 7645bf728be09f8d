"""Falcon-H1: every layer runs attention and Mamba-2 side by side and owns a cache of each.

vLLM 0.32 `model_executor/models/falcon_h1.py FalconH1ParallelHybrid`. Defaults of transformers 5.19 `FalconH1Config`.
"""

from dataclasses import replace
from typing import ClassVar

from decodebench.models.attention import attention
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.families.granite import mamba_head
from decodebench.models.state import mamba2_layer, mamba2_shapes


class FalconH1(Family):
    name = "Falcon-H1"
    architectures = ("FalconH1ForCausalLM",)
    model_types = ("falcon_h1",)
    caches_all_states = True
    defaults: ClassVar[Defaults] = {
        "mamba_chunk_size": 256,
        "max_position_embeddings": 8192,
        "num_key_value_heads": 8,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 128,
        "mamba_d_head": "auto",
        "mamba_d_ssm": 1024,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        width = config.optional_integer("mamba_d_ssm") or config.integer("mamba_expand") * config.integer(
            "hidden_size"
        )
        shapes = mamba2_shapes(
            context,
            intermediate=width,
            groups=config.integer("mamba_n_groups"),
            heads=config.integer("mamba_n_heads"),
            head=mamba_head(config, width),
            state=config.integer("mamba_d_state"),
            kernel=config.integer("mamba_d_conv"),
        )
        count = config.integer("num_hidden_layers")
        layers = []
        for index in range(count):
            # NOTE: the engine counts the state half of a layer on from the last layer, to keep names apart.
            state = replace(
                mamba2_layer(context, index, "mixer", shapes), name=f"model.{count + index}.mixer"
            )
            layers += [attention(context, index, module="attn"), state]
        return layers
