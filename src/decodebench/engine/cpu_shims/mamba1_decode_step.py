"""Mamba-1 has no decode kernel on the CPU.

Fact of vLLM 0.32: `CPUSSUBackend` (`model_executor/layers/mamba/ops/ssu_dispatch.py`) hands Mamba-1 (Jamba) and Mamba-2
to the same kernel, `selective_state_update_cpu`. That one is Mamba-2's. It refuses a state without a head dimension.
With one put in it runs and computes something else, for it takes one A, dt and D a head, where Mamba-1 has a dt and a D
for every channel and an A for every number of the state (measured: right only where all are equal). The step below is

    state = exp(dt A) state + dt x B        out = C . state + D x,  times silu(z)
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim

UNHEADED = 3  # dimensions of a Mamba-1 state: slots, dim, dstate


def is_needed(module: ModuleType) -> bool:
    """Does the backend refuse a Mamba-1 state, or get its step wrong?"""
    import torch
    from vllm import _custom_ops as ops

    backend = object.__new__(module.CPUSSUBackend)
    backend._cpp_kernel = ops.selective_state_update_cpu
    dim, dstate = 16, 16
    A = -torch.arange(1.0, 1 + dim * dstate).view(dim, dstate) / dim
    vectors = torch.linspace(0.1, 1, dim)[None], torch.linspace(0.1, 1, dim)[None]
    rows = torch.ones(1, dstate), torch.ones(1, dstate), torch.ones(dim), torch.zeros(dim)
    slots = torch.tensor([1], dtype=torch.int32)

    def one_step(step: Callable[..., None]) -> Any:
        state, out = torch.ones(2, dim, dstate), torch.zeros(1, dim)
        where = {"state_batch_indices": slots, "dst_state_batch_indices": slots, "out": out}
        step(state, *vectors, A, *rows, z=torch.ones(1, dim), dt_softplus=True, **where)
        return out

    try:
        return not torch.allclose(one_step(backend), one_step(decode_step), atol=1e-4)
    except (IndexError, RuntimeError):
        return True


def repair(module: ModuleType) -> None:
    """Send states without a head dimension to the step in torch."""
    original = module.CPUSSUBackend.__call__

    def by_dimensions(self: Any, state: Any, *args: Any, **rest: Any) -> None:
        if state.dim() == UNHEADED:
            decode_step(state, *args, **rest)
        else:
            original(self, state, *args, **rest)

    module.CPUSSUBackend.__call__ = by_dimensions


def decode_step(
    state: Any,  # [slots, dim, dstate], the rows of `dst_state_batch_indices` are written
    x: Any,  # [requests, dim]
    dt: Any,  # [requests, dim]
    A: Any,  # [dim, dstate]
    B: Any,  # [requests, dstate]
    C: Any,  # [requests, dstate]
    D: Any,  # [dim]
    dt_bias: Any,  # [dim]
    z: Any = None,  # [requests, dim]
    dt_softplus: bool = False,
    state_batch_indices: Any = None,  # [requests]
    dst_state_batch_indices: Any = None,  # [requests]
    null_block_id: int = 0,
    out: Any = None,  # [requests, dim], written
    **rest: Any,
) -> None:
    """One token of every request, as `mamba_mixer.py` asks for it; requests in the null block are passed over."""
    from torch.nn.functional import silu, softplus

    used = dst_state_batch_indices.flatten() != null_block_id
    source = state_batch_indices.flatten()[used].long()
    target = dst_state_batch_indices.flatten()[used].long()
    x, dt = x[used].float(), dt[used].float()
    dt = dt if dt_bias is None else dt + dt_bias.float()
    dt = softplus(dt) if dt_softplus else dt
    new = state[source].float() * (dt[:, :, None] * A.float()).exp_()
    new += (dt * x)[:, :, None] * B[used].float()[:, None, :]
    y = (new @ C[used].float()[:, :, None]).squeeze(-1) + D.float() * x
    out[used] = (y if z is None else y * silu(z[used].float())).to(out.dtype)
    state[target] = new.to(state.dtype)


SHIM = Shim(
    name="mamba1-decode-step",
    module="vllm.model_executor.layers.mamba.ops.ssu_dispatch",
    is_needed=is_needed,
    repair=repair,
)
