"""Mamba-1 has no prefill kernel on the CPU.

Fact of vLLM 0.32: `selective_scan_fn` (`model_executor/layers/mamba/ops/mamba_ssm.py`) calls the op
`selective_scan_fwd`, which the CPU build does not contain. A filled request never reaches it; a request without a fill
(another user's, a donor) kills the engine there. The scan below is the recurrence in torch, one step a token:

    state[t] = exp(dt[t] A) state[t-1] + dt[t] u[t] B[t]        y[t] = C[t] . state[t] + D u[t],  times silu(z[t])
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim

NULL_BLOCK = 0


def is_needed(module: ModuleType) -> bool:
    """Is the op missing, and the function that calls it still vLLM's own?"""
    import torch

    return not hasattr(torch.ops._C, "selective_scan_fwd") and module.selective_scan_fn is not selective_scan


def repair(module: ModuleType) -> None:
    """Put the scan in torch in its place."""
    module.selective_scan_fn = selective_scan  # type: ignore[attr-defined]


def selective_scan(
    u: Any,  # [dim, tokens]
    ssm_states: Any,  # [slots, dim, dstate], the last state of each sequence is written back
    delta: Any,  # [dim, tokens]
    A: Any,  # [dim, dstate]
    B: Any,  # [dstate, tokens]
    C: Any,  # [dstate, tokens]
    D: Any,  # [dim]
    z: Any,  # [dim, tokens]
    delta_bias: Any,  # [dim]
    *,
    delta_softplus: bool,
    cache_indices: Any,  # [sequences]
    has_initial_state: Any,  # [sequences]
    query_start_loc: Any,  # [sequences + 1]
    **chunks: Any,  # where states inside a sequence would be kept: another layout's concern
) -> Any:
    """The scan of every sequence in the batch, called as `mamba_mixer.py` calls it; returns y, [dim, tokens]."""
    import torch
    from torch.nn.functional import silu, softplus

    if cache_indices.dim() != 1:
        raise NotImplementedError("Mamba-1 on the CPU with one state a block (mamba_cache_mode=all)")
    dt = delta.float() if delta_bias is None else delta.float() + delta_bias.float()[:, None]
    dt = softplus(dt) if delta_softplus else dt
    y = torch.zeros_like(u)
    bounds = query_start_loc.tolist()
    for sequence, slot in enumerate(cache_indices.tolist()):
        part = slice(bounds[sequence], bounds[sequence + 1])
        if slot == NULL_BLOCK or part.start == part.stop:
            continue
        x = u[:, part].float()
        decay = torch.exp(dt[:, part].T[:, :, None] * A.float())
        states = (dt[:, part] * x).T[:, :, None] * B[:, part].float().T[:, None, :]  # [tokens, dim, dstate]
        if has_initial_state is not None and bool(has_initial_state[sequence]):
            states[0].addcmul_(ssm_states[slot].float(), decay[0])
        for now in range(1, len(states)):
            states[now].addcmul_(states[now - 1], decay[now])
        out = (states @ C[:, part].float().T[:, :, None]).squeeze(-1).T + D.float()[:, None] * x
        y[:, part] = (out * silu(z[:, part].float())).to(y.dtype)
        ssm_states[slot].copy_(states[-1])
    return y


SHIM = Shim(
    name="mamba1-selective-scan",
    module="vllm.model_executor.layers.mamba.ops.mamba_ssm",
    is_needed=is_needed,
    repair=repair,
)
