"""Mamba-2's prefill on the CPU does not give the states inside a sequence that prefix caching keeps.

Fact of vLLM 0.32: with prefix caching on, `mamba_mixer2.py` asks the chunk scan for the state after every chunk
(`return_intermediate_states=True`) as soon as a prompt crosses a block, and indexes the answer by chunk. The CPU's scan
(`model_executor/layers/mamba/ops/cpu/mamba_ssm.py`) ignores the argument and returns the last state of each sequence:
IndexError, and the engine is dead. A filled request never scans; one without a fill does. Here the scan goes chunk by
chunk, each from the state the one before has left.
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim

SCAN = "_mamba_chunk_scan_combined_fwd_cpu"


def is_needed(module: ModuleType) -> bool:
    """Does the scan of one sequence in two chunks give a single state?"""
    import torch

    tokens, chunk, heads, dim, dstate = 8, 4, 2, 16, 16
    ends = torch.tensor([0, chunk, tokens], dtype=torch.int32)
    x = torch.ones(tokens, heads, dim)
    states = getattr(module, SCAN)(
        x,
        torch.ones(tokens, heads),
        -torch.ones(heads),
        torch.ones(tokens, 1, dstate),
        torch.ones(tokens, 1, dstate),
        chunk,
        torch.empty_like(x),
        D=torch.ones(heads),
        return_intermediate_states=True,
        seq_idx=torch.zeros(2, dtype=torch.int32),
        cu_seqlens=torch.tensor([0, tokens], dtype=torch.int32),
        cu_chunk_seqlens=ends,
        last_chunk_indices=torch.tensor([1]),
    )
    return len(states) != len(ends) - 1


def repair(module: ModuleType) -> None:
    """Scan chunk by chunk when the states inside are asked for."""
    original = getattr(module, SCAN)

    def scan(
        x: Any,  # [tokens, heads, dim]
        dt: Any,  # [tokens, heads]
        A: Any,
        B: Any,  # [tokens, groups, dstate]
        C: Any,
        chunk_size: int,
        out: Any,  # [tokens, heads, dim], written
        *,
        return_intermediate_states: bool = False,
        initial_states: Any = None,  # [sequences, heads, dim, dstate]
        seq_idx: Any = None,  # [chunks]
        cu_seqlens: Any = None,
        cu_chunk_seqlens: Any = None,  # [chunks + 1]
        z: Any = None,
        state_dtype: Any = None,
        **rest: Any,
    ) -> Any:
        import torch

        if not return_intermediate_states:
            whole = {
                "initial_states": initial_states,
                "cu_seqlens": cu_seqlens,
                "z": z,
                "state_dtype": state_dtype,
            }
            return original(x, dt, A, B, C, chunk_size, out, **whole, **rest)
        bounds, sequences = cu_chunk_seqlens.tolist(), seq_idx.tolist()
        states: list[Any] = []
        for chunk, sequence in enumerate(sequences):
            part = slice(bounds[chunk], bounds[chunk + 1])
            if chunk and sequences[chunk - 1] == sequence:
                before = states[-1]
            else:
                before = None if initial_states is None else initial_states[sequence : sequence + 1]
            length = torch.tensor([0, part.stop - part.start], dtype=torch.int32)
            states.append(
                original(
                    *(x[part], dt[part], A, B[part], C[part], chunk_size, out[part]),
                    initial_states=before,
                    cu_seqlens=length,
                    z=None if z is None else z[part],
                    state_dtype=torch.float32,
                    **rest,
                )
            )
        return torch.cat(states).to(x.dtype if state_dtype is None else state_dtype)

    setattr(module, SCAN, scan)


SHIM = Shim(
    name="mamba2-chunk-states",
    module="vllm.model_executor.layers.mamba.ops.cpu.mamba_ssm",
    is_needed=is_needed,
    repair=repair,
)
