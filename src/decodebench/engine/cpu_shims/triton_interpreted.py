"""Triton counts as there when it runs interpreted.

Fact of vLLM 0.32: `triton_utils/importing.py` sets `HAS_TRITON` to False on the CPU build when Triton has no CPU
backend, and `triton` is then a placeholder whose kernels cannot be launched. DeepSeek-V4 launches a few. Triton itself
can run a kernel in Python on CPU tensors (`TRITON_INTERPRET=1`), slowly. Whoever sets that variable wants exactly this.
"""

from collections.abc import Mapping
from types import ModuleType

from decodebench.engine.cpu_shims.base import Shim


def applies(env: Mapping[str, str]) -> bool:
    return env.get("TRITON_INTERPRET") == "1"


def is_needed(module: ModuleType) -> bool:
    """Does vLLM disable Triton although it is interpreted?"""
    return not module.HAS_TRITON


def repair(module: ModuleType) -> None:
    """Say that Triton is there."""
    module.HAS_TRITON = True  # type: ignore[attr-defined]


SHIM = Shim(
    name="triton-interpreted",
    module="vllm.triton_utils.importing",
    is_needed=is_needed,
    repair=repair,
    applies=applies,
)
