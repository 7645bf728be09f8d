"""Jamba: Mamba-1 layers with one attention layer in every period.

vLLM 0.32 `model_executor/models/jamba.py`, which ignores `head_dim`.
"""

from typing import ClassVar

from decodebench.models.attention import attention
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.state import mamba1_shapes, state_layer


class Jamba(Family):
    name = "Jamba"
    architectures = ("JambaForCausalLM",)
    model_types = ("jamba",)
    caches_all_states = True
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 262144,
        "num_key_value_heads": 8,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    }

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        period, offset = config.integer("attn_layer_period"), config.optional_integer("attn_layer_offset")
        hidden = config.integer("hidden_size")
        shapes = mamba1_shapes(
            context,
            intermediate=config.integer("mamba_expand") * hidden,
            state=config.integer("mamba_d_state"),
            kernel=config.integer("mamba_d_conv"),
        )
        dtypes = (context.dtypes.conv_state, context.dtypes.ssm_state())
        head = hidden // config.integer("num_attention_heads")
        return [
            attention(context, index, head=head, module="attn")
            if index % period == offset
            else state_layer(context, index, "mixer", mamba_type="mamba1", shapes=shapes, dtypes=dtypes)
            for index in range(config.integer("num_hidden_layers"))
        ]
