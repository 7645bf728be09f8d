"""config.json -> per-layer KV specs. `model.py` is the way in; `base.py` the contract of a family."""

from decodebench.models.config_file import ModelConfig, parse, read
from decodebench.models.engine import EngineFlags
from decodebench.models.errors import ConfigError, ModelError, UnknownModelError
from decodebench.models.gpus import GPUS, Gpu, find_gpu
from decodebench.models.model import ModelSpecs, describe, load

__all__ = [
    "GPUS",
    "ConfigError",
    "EngineFlags",
    "Gpu",
    "ModelConfig",
    "ModelError",
    "ModelSpecs",
    "UnknownModelError",
    "describe",
    "find_gpu",
    "load",
    "parse",
    "read",
]
