"""Finds the family of a config: by its architecture, or by the model type where no architecture is named.

A multimodal wrapper whose language model is another family's is found by the model type of its text config. An
architecture that no family claims is refused by name: a guess would give wrong numbers with full confidence.
"""

from decodebench.models.base import Family
from decodebench.models.config_file import ModelConfig
from decodebench.models.errors import UnknownModelError
from decodebench.models.families.deepseek import DeepSeek
from decodebench.models.families.deepseek_sparse import DeepSeekSparse
from decodebench.models.families.deepseek_v4 import DeepSeekV4
from decodebench.models.families.falcon_h1 import FalconH1
from decodebench.models.families.gemma import Gemma, Gemma2, Gemma3
from decodebench.models.families.gemma4 import Gemma4
from decodebench.models.families.glm4 import Glm4
from decodebench.models.families.gpt_oss import GptOss
from decodebench.models.families.granite import GraniteHybrid
from decodebench.models.families.jamba import Jamba
from decodebench.models.families.kimi_linear import KimiLinear
from decodebench.models.families.lfm2 import Lfm2
from decodebench.models.families.llama import Llama
from decodebench.models.families.llama4 import Llama4
from decodebench.models.families.minimax import MiniMax01
from decodebench.models.families.minimax_m2 import MiniMaxM2
from decodebench.models.families.mistral import Ministral3, Mistral
from decodebench.models.families.mixtral import Mixtral
from decodebench.models.families.nemotron_h import NemotronH
from decodebench.models.families.qwen import Qwen
from decodebench.models.families.qwen_next import Qwen3Next, Qwen35
from decodebench.models.families.zamba2 import Zamba2

FAMILIES: tuple[Family, ...] = (
    Llama(),
    Mistral(),
    Ministral3(),
    Mixtral(),
    Qwen(),
    Gemma(),
    Gemma2(),
    Gemma3(),
    Gemma4(),
    GptOss(),
    Llama4(),
    DeepSeek(),
    DeepSeekSparse(),
    DeepSeekV4(),
    KimiLinear(),
    Jamba(),
    GraniteHybrid(),
    NemotronH(),
    FalconH1(),
    Zamba2(),
    Qwen3Next(),
    Qwen35(),
    Lfm2(),
    MiniMax01(),
    MiniMaxM2(),
    Glm4(),
)
# Wrappers that hand their text config to whatever language model it names (`init_vllm_registered_model`).
WRAPPERS = (
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "PixtralForConditionalGeneration",
)

BY_ARCHITECTURE = {architecture: family for family in FAMILIES for architecture in family.architectures}
BY_MODEL_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}


def find_family(config: ModelConfig) -> Family:
    """The family that sizes this config's caches, or an error that says what is not known."""
    architecture = config.architecture
    if architecture is None:
        return _by_model_type(config, config.model_type)
    if architecture in WRAPPERS and config.text_key is not None:
        return _by_model_type(config, config.text_model_type)
    family = BY_ARCHITECTURE.get(architecture)
    if family is None:
        raise UnknownModelError(
            f"{config.source}: architecture {architecture!r} is not known, so its layers cannot be sized; "
            f"known families: {', '.join(known.name for known in FAMILIES)}"
        )
    return family


def _by_model_type(config: ModelConfig, model_type: str | None) -> Family:
    if model_type is None:
        raise UnknownModelError(f"{config.source}: neither architectures nor model_type names a model")
    family = BY_MODEL_TYPE.get(model_type)
    if family is None:
        raise UnknownModelError(
            f"{config.source}: model_type {model_type!r} is not known, so its layers cannot be sized; "
            f"known: {', '.join(sorted(BY_MODEL_TYPE))}"
        )
    return family
