"""MiniMax-Text-01 and M1: seven linear-attention layers, then one of full attention.

The models were removed after vLLM 0.23 (`model_executor/models/registry.py _PREVIOUSLY_SUPPORTED_MODELS`). The state is
that of `linear_attention_state_shape`: heads x head x head in the model's dtype.
"""

from decodebench.models.attention import attention, head_size
from decodebench.models.base import Context, Family, Layer
from decodebench.models.state import linear_attention_shapes, state_layer


class MiniMax01(Family):
    name = "MiniMax-Text-01/M1"
    architectures = ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM")
    model_types = ("minimax_text_01", "minimax_m1")
    last_version = (0, 23)

    def layers(self, context: Context) -> list[Layer]:
        """`attn_type_list` holds 0 for linear attention and 1 for full."""
        config = context.config
        count = config.integer("num_hidden_layers")
        kinds = config.integers("attn_type_list")
        if kinds is None or len(kinds) < count:
            raise config.wrong("attn_type_list", kinds, f"0 or 1 for each of the {count} layers")
        heads, head = config.integer("num_attention_heads"), head_size(config)
        shapes = linear_attention_shapes(context, heads=heads, head=head)
        dtypes = (context.dtypes.conv_state,)
        layers = []
        for index, kind in enumerate(kinds[:count]):
            if kind == 0:
                layers.append(
                    state_layer(
                        context, index, "self_attn", mamba_type="linear", shapes=shapes, dtypes=dtypes
                    )
                )
            elif kind == 1:
                layers.append(attention(context, index))
            else:
                raise self.unknown_layer_type(config, index, kind)
        return layers
