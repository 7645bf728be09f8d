"""Which blocks of a request a token range covers, group by group.

Every KV cache group has its own block table, in which position i stands for tokens [i * block_size, (i + 1) *
block_size). What the blocks hold differs by kind:

- full, sliding and chunked attention: one entry per block of tokens; blocks that left the window are the null block
  (id 0, `BlockPool.null_block` in vLLM 0.32);
- recurrent state (Mamba, GDN, ...): the state after n tokens is in entry ceil_div(n, block_size) - 1. That holds for
  both cache modes: in mode `none` the block size is the whole context, so the entry is always 0, and speculative
  scratch blocks follow it (`single_type_kv_cache_manager.py MambaManager`);
- circular buffer: one block for the whole life of the request.

    >>> select(GroupShape("full_attention", 4), [5, 6, 7], 0, 11)
    GroupWrites(whole=[5, 6], partial=[PartialBlock(block_id=7, first_token=0, end_token=3)], zero=())
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.writes import GroupWrites, PartialBlock

NULL_BLOCK = 0

GroupKind = Literal["full_attention", "sliding_window", "chunked_local", "state", "circular_buffer"]


@dataclass(frozen=True, slots=True)
class GroupShape:
    """How one KV cache group maps tokens to blocks.

    `window` is what a sliding-window group retains (window + extra retained tokens) or the chunk of a chunked-local
    group; `scratch_blocks` the speculative blocks of a state group.
    """

    kind: GroupKind
    block_size: int  # tokens
    window: int = 0  # tokens
    scratch_blocks: int = 0


def select(shape: GroupShape, block_ids: Sequence[int], local: int, total: int) -> GroupWrites:
    """Blocks of one group that hold tokens [local, total), of which [0, local) are already computed here.

    `block_ids` is the request's current block table of the group, null blocks as id 0. Blocks behind the range (room
    for tokens to come) are not part of it.
    """
    if not 0 <= local < total:
        raise ValueError(f"no external tokens: local={local}, total={total}")
    if shape.kind == "circular_buffer":
        return GroupWrites(zero=[block for block in block_ids if block != NULL_BLOCK])
    if shape.kind == "state":
        return _select_state(shape, block_ids, total)
    return _select_attention(shape.block_size, block_ids, local, total)


def _select_state(shape: GroupShape, block_ids: Sequence[int], total: int) -> GroupWrites:
    entry = ceil_div(total, shape.block_size) - 1
    bearing = [block for block in block_ids[entry : entry + 1] if block != NULL_BLOCK]
    scratch = block_ids[entry + 1 : entry + 1 + shape.scratch_blocks]
    return GroupWrites(whole=bearing, zero=[block for block in scratch if block != NULL_BLOCK])


def _select_attention(size: int, block_ids: Sequence[int], local: int, total: int) -> GroupWrites:
    first, last = local // size, (total - 1) // size
    head, tail = local % size, total % size
    blocks = block_ids[first : last + 1]
    edges = {}  # position in `blocks` -> (first token, end token) where the range cuts a block
    if head:
        edges[0] = (head, size)
    if tail:
        edges[last - first] = (head if last == first else 0, tail)
    partial = [
        PartialBlock(blocks[at], start, end)
        for at, (start, end) in edges.items()
        if at < len(blocks) and blocks[at] != NULL_BLOCK
    ]
    whole_from = 1 if head else 0
    whole_to = last - first + (0 if tail else 1)
    return GroupWrites(
        whole=[block for block in blocks[whole_from:whole_to] if block != NULL_BLOCK], partial=partial
    )


def blocks_filled(shape: GroupShape, total: int) -> int:
    """Blocks that a fill of the first `total` tokens writes in one group when none of them is computed locally.

    The engine drops what a window no longer needs before it allocates (`get_num_skipped_tokens` of each manager in
    vLLM 0.32's `single_type_kv_cache_manager.py`).
    """
    if shape.kind in ("circular_buffer", "state"):
        return 1
    skipped = 0
    if shape.kind == "sliding_window":
        skipped = max(0, total - shape.window + 1)
    elif shape.kind == "chunked_local":
        skipped = total // shape.window * shape.window
    return ceil_div(total, shape.block_size) - skipped // shape.block_size
