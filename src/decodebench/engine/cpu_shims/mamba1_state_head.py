"""Mamba-1 decodes through a kernel that wants a head dimension, which Mamba-1 does not have.

Fact of vLLM 0.32: `CPUSSUBackend.__call__` (`model_executor/layers/mamba/ops/ssu_dispatch.py`) hands the tensors to
`selective_state_update_cpu` as they come. The kernel's state is (slots, heads, dim, dstate). `mamba_mixer.py` (Mamba-1:
Jamba) has no heads and calls with three dimensions, which the kernel refuses. With one head put in, it decodes in
float32.
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim

STATE_DIMS = 4  # slots, heads, dim, dstate


def is_needed(module: ModuleType) -> bool:
    """Does the backend pass a state of three dimensions to its kernel as it is?"""
    import torch

    seen: list[int] = []
    backend = object.__new__(module.CPUSSUBackend)
    backend._cpp_kernel = lambda state, *rest: seen.append(state.dim())
    unheaded = torch.zeros(2, 3, 4), torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(3, 4)
    backend(*unheaded, torch.zeros(1, 4), torch.zeros(1, 4), torch.zeros(3), torch.zeros(3))
    return seen != [STATE_DIMS]


def repair(module: ModuleType) -> None:
    """Give the kernel one head where the state has none."""
    original = module.CPUSSUBackend.__call__

    def with_head(
        self: Any, state: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, dt_bias: Any, **rest: Any
    ) -> None:
        if state.dim() == STATE_DIMS:
            original(self, state, x, dt, A, B, C, D, dt_bias, **rest)
            return
        for name in ("z", "out"):
            if rest.get(name) is not None:
                rest[name] = rest[name].unsqueeze(1)
        original(
            self,
            state.unsqueeze(1),
            x.unsqueeze(1),
            dt.unsqueeze(1),
            A.unsqueeze(0),
            B.unsqueeze(1),
            C.unsqueeze(1),
            D.unsqueeze(0),
            dt_bias.unsqueeze(0) if dt_bias is not None else None,
            **rest,
        )

    module.CPUSSUBackend.__call__ = with_head


SHIM = Shim(
    name="mamba1-state-head",
    module="vllm.model_executor.layers.mamba.ops.ssu_dispatch",
    is_needed=is_needed,
    repair=repair,
)
