"""Kimi-Linear: KDA state layers and NoPE latent layers.

vLLM 0.32 `models/kimi_k3/nvidia/model.py` and `kda.py`. `linear_attn_config` numbers layers from 1. The recurrent state
is fp32 unless asked otherwise (`MambaStateDtypeCalculator.kda_state_dtype`). Prefill checkpoints need FlashKDA, which
needs a bounded gate (`gate_lower_bound`), on SM90, SM100 and SM120.
"""

from decodebench.models.attention import latent
from decodebench.models.base import Context, Family, Layer
from decodebench.models.errors import ConfigError
from decodebench.models.state import kda_shapes, state_layer

FLASHKDA_ALIGNMENT = 16  # `layers/mamba/kda_checkpoint.py kda_prefill_checkpoint_alignment`


class KimiLinear(Family):
    name = "Kimi-Linear"
    architectures = ("KimiLinearForCausalLM",)
    model_types = ("kimi_linear",)

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        linear = config.mapping("linear_attn_config")
        state_numbers = linear.integers("kda_layers")
        if state_numbers is None:
            raise ConfigError(f"{config.source}: key 'linear_attn_config.kda_layers' is missing")
        known = {*state_numbers, *(linear.integers("full_attn_layers") or [])}
        layers = []
        for index in range(config.integer("num_hidden_layers")):
            if index + 1 not in known:
                raise self.unknown_layer_type(config, index, "neither in kda_layers nor in full_attn_layers")
            layers.append(
                self._state(context, index) if index + 1 in state_numbers else latent(context, index)
            )
        return layers

    def _state(self, context: Context, index: int) -> Layer:
        linear = context.config.mapping("linear_attn_config")
        shapes = kda_shapes(
            context,
            heads=linear.integer("num_heads"),
            head=linear.integer("head_dim"),
            kernel=linear.integer("short_conv_kernel_size"),
        )
        flashkda = (
            linear.get("use_full_rank_gate")
            and linear.get("gate_lower_bound") is not None
            and linear.integer("head_dim") == 128
            and context.dtypes.model == "bfloat16"
            and context.engine.gpu.major in (9, 10, 12)
        )
        return state_layer(
            context,
            index,
            "self_attn",
            mamba_type="gdn_attn",
            shapes=shapes,
            dtypes=(context.dtypes.conv_state, context.dtypes.ssm_state("float32")),
            checkpoint_alignment=FLASHKDA_ALIGNMENT if flashkda else None,
        )
