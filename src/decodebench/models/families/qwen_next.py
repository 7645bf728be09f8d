"""Qwen3-Next and Qwen3.5, dense and MoE: three GDN state layers, then one of full attention.

vLLM 0.32 `model_executor/models/qwen3_next.py`, `qwen3_5.py`. Qwen3.5 keeps its recurrent state in the config's
`mamba_ssm_dtype` (`models/config.py Qwen3_5ForConditionalGenerationConfig`), Qwen3-Next in the model's dtype. From 0.33
on, FlashInfer's GDN prefill exports the state at multiples of 64 tokens into one more block.
"""

from dataclasses import replace
from typing import ClassVar

from decodebench.models.attention import attention, layer_types
from decodebench.models.base import Context, Defaults, Family, Layer, Names
from decodebench.models.config_file import ModelConfig
from decodebench.models.dtypes import FLOATS
from decodebench.models.state import gdn_shapes, state_layer

FLASHINFER_ALIGNMENT = 64
CHECKPOINTS_SINCE = (0, 33)


class Qwen3Next(Family):
    name = "Qwen3-Next"
    architectures: ClassVar[Names] = ("Qwen3NextForCausalLM",)
    model_types: ClassVar[Names] = ("qwen3_next",)
    defaults: ClassVar[Defaults] = {
        "max_position_embeddings": 32768,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    draft_count_key = "num_nextn_predict_layers"

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        interval = config.integer("full_attention_interval")
        types = layer_types(config) or [
            "linear_attention" if (index + 1) % interval else "full_attention"
            for index in range(config.integer("num_hidden_layers"))
        ]
        layers = []
        for index, kind in enumerate(types):
            if kind == "linear_attention":
                layers.append(self._state(context, index))
            elif kind == "full_attention":
                layers.append(attention(context, index))
            else:
                raise self.unknown_layer_type(config, index, kind)
        return layers

    def draft_layers(self, context: Context) -> list[Layer]:
        """MTP layers are full attention, in a module of their own (`qwen3_next_mtp.py`, `qwen3_5_mtp.py`).

        A config that does not count them has one: both modules read the key with that default.
        """
        first = context.config.integer("num_hidden_layers")
        given = context.config.optional_integer(self.draft_count_key)
        extra = 1 if given is None else given
        if not extra:
            return super().draft_layers(context)
        return [
            replace(attention(context, first + index), name=f"mtp.layers.{index}.self_attn.attn")
            for index in range(extra)
        ]

    def ssm_dtype(self, config: ModelConfig) -> str | None:
        """The recurrent state's dtype where the model has its own; None: the model's."""
        return None

    def _state(self, context: Context, index: int) -> Layer:
        config, engine = context.config, context.engine
        shapes = gdn_shapes(
            context,
            k_heads=config.integer("linear_num_key_heads"),
            v_heads=config.integer("linear_num_value_heads"),
            k_head=config.integer("linear_key_head_dim"),
            v_head=config.integer("linear_value_head_dim"),
            kernel=config.integer("linear_conv_kernel_dim"),
        )
        checkpoints = engine.gdn_prefill == "flashinfer" and engine.vllm_version >= CHECKPOINTS_SINCE
        return state_layer(
            context,
            index,
            "linear_attn",
            mamba_type="gdn_attn",
            shapes=shapes,
            dtypes=(context.dtypes.conv_state, context.dtypes.ssm_state(self.ssm_dtype(config))),
            checkpoint_alignment=FLASHINFER_ALIGNMENT if checkpoints else None,
        )


class Qwen35(Qwen3Next):
    name = "Qwen3.5"
    architectures: ClassVar[Names] = (
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    )
    model_types: ClassVar[Names] = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")
    draft_count_key = "mtp_num_hidden_layers"

    def ssm_dtype(self, config: ModelConfig) -> str | None:
        wish = config.get("mamba_ssm_dtype")
        if wish is None:
            return None
        if wish not in FLOATS:
            raise config.wrong("mamba_ssm_dtype", wish, f"one of {', '.join(FLOATS)}")
        return FLOATS[wish]
