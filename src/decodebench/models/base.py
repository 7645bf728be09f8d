"""The contract of a model family: which layers of a config own a cache, and what each cache looks like.

A family reads a config and returns `Layer`s. A layer leaves its block size open, because the engine settles it for all
layers at once (`blocks.py`); a family fixes it only where the engine's own code does. Shapes are those of one tensor
parallel rank. A layer type that a family does not know is refused by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from decodebench.kv.specs import ALIGN, ALL, NONE, LayerSpec
from decodebench.models.backends import Kernel
from decodebench.models.config_file import ModelConfig
from decodebench.models.dtypes import ModelDtypes
from decodebench.models.engine import EngineFlags
from decodebench.models.errors import UnknownModelError

ALIGN_BY_DEFAULT_SINCE = (0, 28)
Names = tuple[str, ...]
Defaults = Mapping[str, Any]


class SpecBuilder(Protocol):
    def __call__(self, *, block_size: int) -> LayerSpec: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One cache of one decoder layer; a decoder layer may own several.

    `index` is the decoder layer's, which decides its pipeline stage; layers of a drafter follow the model's last.
    """

    index: int
    name: str  # as the engine names the module
    kernel: Kernel
    build: SpecBuilder
    head_size: int = 0
    queries_per_kv_head: int = 1
    own_block_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a family may look at."""

    config: ModelConfig
    engine: EngineFlags
    dtypes: ModelDtypes
    state_mode: str = NONE  # what the engine makes of --mamba-cache-mode for this family

    def layer_name(self, index: int, module: str) -> str:
        return f"{self.config.module_prefix}.layers.{index}.{module}"


class Family(ABC):
    """One family; the registry holds an instance of each.

    `defaults` are the values that the family's transformers config class gives to keys which published configs omit.
    """

    name: ClassVar[str]
    architectures: ClassVar[Names]
    model_types: ClassVar[Names]
    defaults: ClassVar[Defaults] = {}
    pipeline_parallel: ClassVar[bool] = True
    last_version: ClassVar[tuple[int, int] | None] = None  # the last vLLM version that has the family
    caches_all_states: ClassVar[bool] = False  # vLLM's SupportsMambaPrefixCaching

    @abstractmethod
    def layers(self, context: Context) -> list[Layer]:
        """The caches of all decoder layers, in the order in which the engine registers them."""

    def num_layers(self, config: ModelConfig) -> int:
        """Decoder layers that pipeline parallelism distributes."""
        return config.integer("num_hidden_layers")

    def state_mode(self, engine: EngineFlags) -> str:
        """The mode of recurrent state (`models/config.py MambaModelConfig`).

        With prefix caching `align`; up to 0.27 `all` for models that can, up to 0.31 if asked for.
        """
        if not engine.enable_prefix_caching:
            return NONE
        asked_all = engine.mamba_cache_mode == ALL and engine.rules.state_mode_all
        default_all = engine.mamba_cache_mode == NONE and engine.vllm_version < ALIGN_BY_DEFAULT_SINCE
        return ALL if self.caches_all_states and (asked_all or default_all) else ALIGN

    def draft_layers(self, context: Context) -> list[Layer]:
        """The caches of the model's own multi-token-prediction layers."""
        raise UnknownModelError(
            f"{context.config.source}: the {self.name} family has no MTP layers to draft with; "
            "leave the drafter out or name a drafter model"
        )

    def unknown_layer_type(self, config: ModelConfig, index: int, layer_type: object) -> UnknownModelError:
        return UnknownModelError(
            f"{config.source}: layer {index} has type {layer_type!r}, which the {self.name} family does not know; "
            "its cache cannot be sized"
        )
