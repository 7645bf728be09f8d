"""Nemotron-H and Nemotron 3: one letter a layer. M is Mamba-2, * attention; - (MLP) and E (MoE) own no cache.

vLLM 0.32 `model_executor/models/nemotron_h.py`, whose layer count is the pattern's length, and `models/config.py
NemotronHForCausalLMConfig` (SSM state in the config's `mamba_ssm_cache_dtype`, else float32).
"""

from dataclasses import replace
from typing import ClassVar

from decodebench.models.attention import attention, window
from decodebench.models.base import Context, Defaults, Family, Layer
from decodebench.models.config_file import ModelConfig
from decodebench.models.dtypes import FLOATS
from decodebench.models.state import mamba2_layer, mamba2_shapes

LETTERS = {
    "linear_attention": "M",
    "full_attention": "*",
    "mamba": "M",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}


class NemotronH(Family):
    name = "Nemotron-H"
    architectures = ("NemotronHForCausalLM",)
    model_types = ("nemotron_h",)
    caches_all_states = True
    defaults: ClassVar[Defaults] = {
        "chunk_size": 128,
        "max_position_embeddings": 4096,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "mamba_ssm_cache_dtype": "float32",
        "mtp_hybrid_override_pattern": "*E",
    }

    def num_layers(self, config: ModelConfig) -> int:
        return len(self._pattern(config))

    def layers(self, context: Context) -> list[Layer]:
        config = context.config
        shapes, ssm = self._shapes(context), self._ssm_dtype(config)
        layers = []
        for index, letter in enumerate(self._pattern(config)):
            if letter == "M":
                layers.append(mamba2_layer(context, index, "mixer", shapes, ssm))
            elif letter == "*":
                layers.append(self._attention(context, index))
            elif letter not in "-E":
                raise self.unknown_layer_type(config, index, letter)
        return layers

    def draft_layers(self, context: Context) -> list[Layer]:
        """One step of `mtp_hybrid_override_pattern`, in a module of its own (`nemotron_h_mtp.py`)."""
        config = context.config
        if not config.optional_integer("num_nextn_predict_layers"):
            return super().draft_layers(context)
        pattern = config.get("mtp_hybrid_override_pattern")
        if not isinstance(pattern, str):
            raise config.wrong("mtp_hybrid_override_pattern", pattern, "one letter a layer: * or E")
        first = self.num_layers(config)
        layers = []
        for index, letter in enumerate(pattern):
            if letter == "*":
                layers.append(
                    replace(self._attention(context, first + index), name=f"mtp.layers.{index}.mixer.attn")
                )
            elif letter != "E":
                raise self.unknown_layer_type(config, first + index, letter)
        return layers

    def _attention(self, context: Context, index: int) -> Layer:
        return attention(context, index, sliding_window=window(context), module="mixer.attn")

    def _ssm_dtype(self, config: ModelConfig) -> str:
        name = config.get("mamba_ssm_cache_dtype")
        if name not in FLOATS:
            raise config.wrong("mamba_ssm_cache_dtype", name, f"one of {', '.join(FLOATS)}")
        return FLOATS[name]

    def _shapes(self, context: Context) -> tuple[tuple[int, ...], ...]:
        config = context.config
        heads, head = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
        return mamba2_shapes(
            context,
            intermediate=heads * head,
            groups=config.integer("n_groups"),
            heads=heads,
            head=head,
            state=config.integer("ssm_state_size"),
            kernel=config.integer("conv_kernel"),
        )

    def _pattern(self, config: ModelConfig) -> str:
        """`hybrid_override_pattern`, else the same as a list of names."""
        pattern = config.get("hybrid_override_pattern")
        if isinstance(pattern, str) and pattern:
            return pattern
        names = config.strings("layers_block_type") or config.strings("layer_types")
        if names is None:
            raise config.wrong("hybrid_override_pattern", pattern, "one letter a layer: M, *, - or E")
        for index, name in enumerate(names):
            if name not in LETTERS:
                raise self.unknown_layer_type(config, index, name)
        return "".join(LETTERS[name] for name in names)
