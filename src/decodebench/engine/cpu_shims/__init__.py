"""Repairs of vLLM's CPU build, each named, each with the fact it works around and a test that says when it can go.

They are put in place by the launcher, in every process of the engine, on the CPU build only. None changes what is
measured on another device. A recipe names those its family comes near, and results list them.
"""

import os
from collections.abc import Mapping

from decodebench.engine import distribution
from decodebench.engine.cpu_shims import (
    deepseek_v4_tile_scheduler,
    mamba1_decode_step,
    mamba1_dense_rows,
    mamba1_selective_scan,
    mamba2_chunk_states,
    mamba2_prefill_checkpoint,
    triton_interpreted,
)
from decodebench.engine.cpu_shims.after_import import change_after_import
from decodebench.engine.cpu_shims.base import Shim

SHIMS = (
    mamba1_decode_step.SHIM,
    mamba1_selective_scan.SHIM,
    mamba1_dense_rows.SHIM,
    mamba2_chunk_states.SHIM,
    mamba2_prefill_checkpoint.SHIM,
    triton_interpreted.SHIM,
    deepseek_v4_tile_scheduler.SHIM,
)

__all__ = ["SHIMS", "Shim", "active", "install"]


def active(env: Mapping[str, str] = os.environ) -> list[str]:
    """Names of the shims that stand ready in a server of this environment, whatever model it serves."""
    if not distribution.is_cpu_build():
        return []
    return [shim.name for shim in SHIMS if shim.applies(env)]


def install() -> None:
    """Let each shim that applies change its module once that is imported. Imports nothing itself."""
    for shim in SHIMS:
        if shim.applies(os.environ):
            change_after_import(shim.module, shim.mend)
