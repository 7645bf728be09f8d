"""Hybrid models: the attention block grows until its page holds a state, and the state page is padded to it.

Source: vLLM 0.32 `platforms/interface.py _align_hybrid_block_size`.

    >>> align_hybrid(state_bytes=1_097_728, attention_bytes_per_token=2048, block_size=16)
    HybridBlocks(block_size=544, page_bytes=1114112)
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import lcm

from decodebench.kv.arithmetic import ceil_div, round_up
from decodebench.kv.rules import NEWEST, Rules

MLA_BLOCK = 128
"""Hybrid MLA models: decode kernels want 128 / kernel block tables in whole (the comment in the source)."""


@dataclass(frozen=True, slots=True)
class HybridBlocks:
    """Tokens of an attention block, and the page bytes that attention and state share."""

    block_size: int
    page_bytes: int


def align_hybrid(
    *,
    state_bytes: int,
    attention_bytes_per_token: int,
    block_size: int,
    smallest_kernel_blocks: Collection[int] = (16,),
    is_mla: bool = False,
    multiple_of: int = 1,
    rules: Rules = NEWEST,
) -> HybridBlocks:
    """The attention block size and the common page of a model with state layers.

    `state_bytes`: the largest unpadded state page. `attention_bytes_per_token`: one token of one attention
    layer. `block_size`: what was chosen before (the user's, or the backends' preference).
    `smallest_kernel_blocks`: each attention backend's least kernel block, the first backend's first.
    `multiple_of`: tokens between the states that prefill exports (0.33: 64 for FlashInfer's GDN), or the chunk that a
    state stands for in mode `all`; the block is a multiple of them.
    """
    kernel_blocks = list(smallest_kernel_blocks)
    unit = max(kernel_blocks[0], block_size)
    if is_mla and rules.mla_blocks_of_128:
        unit = max(unit, MLA_BLOCK)
    unit = lcm(unit, multiple_of)
    needed = unit * ceil_div(state_bytes, unit * attention_bytes_per_token)
    if rules.align_to_all_backends:
        needed = round_up(needed, lcm(*kernel_blocks))
    aligned = max(block_size, needed)
    return HybridBlocks(aligned, aligned * attention_bytes_per_token)
