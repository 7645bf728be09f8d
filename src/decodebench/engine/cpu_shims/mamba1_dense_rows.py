"""Mamba-1 hands its output projection rows that are not dense, which the CPU's GEMM refuses.

Fact of vLLM 0.32: `mamba_mixer.py` works on (dim, tokens) and passes the transpose of its result to `out_proj`. On the
CPU that is oneDNN's `onednn_mm`, which demands a last stride of 1. A step of decodes alone has it by its layout; a step
that mixes decodes and a prefill has not: RuntimeError, and the engine is dead.
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim


def is_needed(module: ModuleType) -> bool:
    """Does the GEMM refuse such rows, and does no one make them dense for it?"""
    return not hasattr(module.MambaMixer.__init__, "makes_rows_dense") and _gemm_refuses_strided_rows()


def repair(module: ModuleType) -> None:
    """Make the rows dense on their way into the output projection of each layer."""
    original = module.MambaMixer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.out_proj.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))

    init.makes_rows_dense = True  # type: ignore[attr-defined]
    module.MambaMixer.__init__ = init


def _gemm_refuses_strided_rows() -> bool:
    import torch
    from vllm import _custom_ops as ops

    size = 32
    gemm = ops.create_onednn_mm(torch.ones(size, size))
    try:
        ops.onednn_mm(gemm, torch.ones(size, 4).t(), None)
    except RuntimeError:
        return True
    return False


SHIM = Shim(
    name="mamba1-dense-rows",
    module="vllm.model_executor.layers.mamba.mamba_mixer",
    is_needed=is_needed,
    repair=repair,
)
