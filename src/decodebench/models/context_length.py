"""The longest context a config allows, and the one the engine will use.

Read in vLLM 0.32 `config/model.py _get_and_verify_max_len` and `transformers_utils/model_arch_config_convertor.py
derive_max_model_len_and_key`.
"""

from math import isfinite

from decodebench.models.config_file import ModelConfig
from decodebench.models.engine import EngineFlags
from decodebench.models.errors import ModelError

LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
NO_LENGTH_KEY = 2048
# Scaling types whose factor is already in `max_position_embeddings`, or does not stretch it.
UNSCALED = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope")


def derived(config: ModelConfig) -> int:
    """The smallest length key, times a RoPE factor if that type of scaling stretches the context."""
    lengths = [length for key in LENGTH_KEYS if (length := config.optional_integer(key))]
    length = config.optional_integer("model_max_length") or min(lengths, default=NO_LENGTH_KEY)
    kind, factor = _rope_scaling(config)
    if "gemma3" in str(config.model_type) or kind in UNSCALED or factor is None:
        return length
    return int(length * factor)


def max_model_len(config: ModelConfig, engine: EngineFlags) -> int:
    """`--max-model-len` if it is within what the config allows, else the config's own."""
    limit = derived(config)
    window = config.optional_integer("sliding_window")
    if engine.disable_sliding_window and window:
        limit = min(limit, window)
    asked = engine.max_model_len
    if asked is None:
        original = config.optional_integer("original_max_position_embeddings")
        return original if original and _rope_scaling(config)[0] == "longrope" else limit
    if asked > limit and not engine.allow_long_max_model_len:
        raise ModelError(
            f"--max-model-len {asked} is above the {limit} tokens that {config.source} allows; "
            "the engine refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set"
        )
    return asked


def _rope_scaling(config: ModelConfig) -> tuple[str, float | None]:
    """Type and factor; rope parameters kept per layer type are taken not to stretch anything."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, dict):
        return "default", None
    factor = scaling.get("factor")
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if factor is not None and not (isinstance(factor, int | float) and isfinite(factor) and factor > 0):
        raise config.wrong("rope_scaling", scaling, "a positive factor")
    return kind, factor
