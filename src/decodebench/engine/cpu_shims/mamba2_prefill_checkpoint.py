"""Mamba-2 keeps a state inside a prompt with a Triton kernel, which the CPU build does not have.

Fact of vLLM 0.32: `store_prefill_checkpoint` (`model_executor/layers/mamba/ops/ssd_checkpoint.py`) launches a kernel to
copy the convolution's last inputs and the state after a chunk into the block that prefix caching will find. Without
Triton the kernel is a plain function and launching it is a TypeError. Here it is copied in torch. The states come from
`mamba2_chunk_states.py`.
"""

from types import ModuleType
from typing import Any

from decodebench.engine.cpu_shims.base import Shim


def is_needed(module: ModuleType) -> bool:
    """Is the kernel one that cannot be launched, and does the function still launch it?"""
    launchable = hasattr(module._store_prefill_checkpoint_kernel, "__getitem__")
    return not launchable and module.store_prefill_checkpoint is not store


def repair(module: ModuleType) -> None:
    """Copy in torch."""
    module.store_prefill_checkpoint = store  # type: ignore[attr-defined]


def store(
    checkpoint: Any,  # .checkpoint_offsets, .state_indices: [prompts]; offset 0: none for this prompt
    chunk_idx: Any,  # [prompts], into `chunk_states`
    x: Any,  # [dim, tokens], inputs of the convolution
    conv_state: Any,  # [blocks, dim, >= state_len], written
    chunk_states: Any,  # [chunks, heads, head_dim, dstate]
    ssm_state: Any,  # [blocks, heads, head_dim, dstate], written
    query_start_loc: Any,  # [prompts + 1]
    *,
    state_len: int,
) -> None:
    """Write the checkpoint of every prompt that has one into its block."""
    rows = zip(
        query_start_loc.tolist(),
        checkpoint.checkpoint_offsets.tolist(),
        checkpoint.state_indices.tolist(),
        chunk_idx.tolist(),
        strict=False,  # there is one start more than there are prompts
    )
    for start, offset, block, chunk in rows:
        if offset > 0:
            end = start + offset
            conv_state[block, :, :state_len] = x[:, end - state_len : end]
            ssm_state[block] = chunk_states[chunk]


SHIM = Shim(
    name="mamba2-prefill-checkpoint",
    module="vllm.model_executor.layers.mamba.ops.ssd_checkpoint",
    is_needed=is_needed,
    repair=repair,
)
