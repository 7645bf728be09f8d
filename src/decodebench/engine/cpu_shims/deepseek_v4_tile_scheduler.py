"""DeepSeek-V4's sliding-window metadata lacks two keys on the CPU.

Fact of vLLM 0.32: `DeepseekSparseSWAMetadataBuilder` (`v1/attention/backends/mla/sparse_swa.py`) reads one plan per
layer type out of `build_tile_scheduler`, among them the types `c1a` and `c2a`. The CPU's own builder
(`models/deepseek_v4/cpu/cpu_mla.py`) overrides that method and leaves those two out: KeyError in the first step. No
layer of either type exists in the model, and the CPU plans nothing: the value is None, as for the others.
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim


def is_needed(module: ModuleType) -> bool:
    """Does the CPU builder leave out a layer type which the builder it derives from has?"""
    builder = module.DeepseekV4CPUSparseSWAMetadataBuilder
    return not set(_all_keys(builder)) <= set(builder.build_tile_scheduler(None, 0))


def repair(module: ModuleType) -> None:
    """Answer None for the layer types that are missing."""
    builder = module.DeepseekV4CPUSparseSWAMetadataBuilder
    original = builder.build_tile_scheduler
    missing = dict.fromkeys(_all_keys(builder))

    def with_all_keys(self: Any, num_decode_tokens: int) -> dict[str, Any]:
        return missing | original(self, num_decode_tokens)

    builder.build_tile_scheduler = with_all_keys


def _all_keys(builder: type) -> list[str]:
    """The layer types of the device-independent builder, asked for a step without decode tokens."""
    return list(builder.__mro__[1].build_tile_scheduler(None, 0))  # type: ignore[attr-defined]


SHIM = Shim(
    name="deepseek-v4-tile-scheduler",
    module="vllm.models.deepseek_v4.cpu.cpu_mla",
    is_needed=is_needed,
    repair=repair,
)
