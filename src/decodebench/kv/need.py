"""Blocks that one request needs in each group, while decoding and while being prefilled.

A decoding request that grows to n tokens (`context + output + lookahead`) holds at its peak, by kind of group:

- full attention: the blocks of all n tokens;
- sliding window, chunked local: the blocks of the window, of tokens whose step is not settled yet (blocks are freed
  by settled tokens) and of the misalignment of the window's start. How many depends on where in a block the request
  stands, so the peak over its growth is taken;
- state: one block and the speculative ones; in mode `align` one more while a block boundary is crossed, because the
  state before it is freed a step later;
- circular buffer: one.

Source: vLLM 0.32 `v1/core/single_type_kv_cache_manager.py` (`get_num_blocks_to_allocate`, `remove_skipped_blocks`) and
`v1/core/kv_cache_manager.py allocate_slots`.
"""

from collections.abc import Iterator, Sequence
from math import lcm

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.limits import EngineLimits
from decodebench.kv.specs import ALL, NONE, ChunkedLocal, CircularBuffer, LayerSpec, MambaState


def decode_blocks(
    groups: Sequence[KVCacheGroup], context: int, limits: EngineLimits, *, output: int = 0, lookahead: int = 0
) -> tuple[int, ...]:
    """Most blocks a request holds in each group while it grows from `context` to `context + output` tokens.

    `context` counts the prompt, whose last token the first decode step computes; `lookahead` the slots that every
    step allocates ahead (draft tokens and the drafter's own). Nothing grows past `max_model_len`.
    """
    if context < 1 or output < 0 or lookahead < 0:
        raise ValueError(
            f"context {context}, output {output}, lookahead {lookahead} describe no request; "
            "accepted: context >= 1, output >= 0, lookahead >= 0"
        )
    first = min(context, limits.max_model_len)
    last = min(context + output, limits.max_model_len)
    return tuple(
        max(_decode_peak(spec, first, last, lookahead, limits) for spec in group.distinct_specs)
        for group in groups
    )


def prefill_blocks(groups: Sequence[KVCacheGroup], tokens: int, limits: EngineLimits) -> tuple[int, ...]:
    """Blocks for which the scheduler admits a request of `tokens` prompt tokens that it prefills itself.

    For a request of `max_model_len` tokens that is what start-up sizing plans.
    """
    return tuple(
        max(_prefill_peak(spec, tokens, limits) for spec in group.distinct_specs) for group in groups
    )


def _prefill_peak(spec: LayerSpec, tokens: int, limits: EngineLimits) -> int:
    cap = spec.max_blocks(limits)
    scratch = spec.num_speculative_blocks if isinstance(spec, MambaState) else 0
    return min(ceil_div(tokens, _tokens_per_block(spec, limits)) + scratch, cap)


def _decode_peak(spec: LayerSpec, first: int, last: int, lookahead: int, limits: EngineLimits) -> int:
    if isinstance(spec, CircularBuffer):
        return 1
    scratch = 0
    ahead = lookahead  # slots allocated beyond the token that a step computes
    if isinstance(spec, MambaState):
        scratch, ahead = spec.num_speculative_blocks, 0
        if spec.cache_mode == NONE or (spec.cache_mode == ALL and not limits.rules.state_mode_all):
            return 1 + scratch
    block = _tokens_per_block(spec, limits)
    period = lcm(block, spec.attention_chunk_size) if isinstance(spec, ChunkedLocal) else block
    held = 0
    for tokens in _possible_peaks(first, last, block, ahead, period):
        in_flight = min(limits.unsettled_steps, tokens - first) * (1 + lookahead)
        settled = max(tokens - 1 - in_flight, first - 1)
        slots = min(tokens + ahead, limits.max_model_len)
        held = max(held, ceil_div(slots, block) - spec.skipped_tokens(settled) // block)
    return held + scratch


def _possible_peaks(first: int, last: int, block: int, ahead: int, period: int) -> Iterator[int]:
    """Token numbers in [first, last] at which held blocks can peak: the ends, and steps that open a block.

    Held blocks only grow until the window is full and repeat with `period` afterwards, so that of a long growth the
    last two periods tell all.
    """
    yield first
    yield last
    start = max(first, last - 2 * period)
    yield from range(start + (1 - ahead - start) % block, last + 1, block)


def _tokens_per_block(spec: LayerSpec, limits: EngineLimits) -> int:
    """Tokens of a request that one block stands for: those of every rank that shares them out."""
    return spec.block_size * (limits.decode_context_parallel_size if spec.dcp_sharded else 1)
