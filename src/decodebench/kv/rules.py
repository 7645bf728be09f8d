"""What differs between vLLM versions in the rules of the KV cache.

Every switch was read in the released sources of the versions it names (`v1/core/kv_cache_utils.py`,
`v1/kv_cache_interface.py`, `config/vllm.py`, `platforms/interface.py`); the rest of this room holds for all
of them.

>>> rules_for("0.24.0").reserve_concurrent_batches
False
"""

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

OLDEST: Version = (0, 18, 0)
NEWEST_KNOWN: Version = (0, 33, 0)
ANY_PATCH = 99  # "0.20" means its last patch release


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The version-dependent switches of grouping and capacity."""

    version: str
    assumed: bool  # newer than the newest version these rules were read in
    # Recycling caches reserve for every batch in flight, not for one.
    reserve_concurrent_batches: bool
    # The start-up line is concurrency x max_model_len, not blocks // groups x block size.
    log_capacity_by_concurrency: bool
    # Size and concurrency stand in one log line.
    log_one_line: bool
    # Start-up demands one block more than the largest request: the null block.
    reserve_null_block: bool
    # State pages are padded up to the largest page.
    pad_state_pages: bool
    # So are attention pages (not MLA) that do not divide it. 0.24 to 0.28 did that on block-first layouts only,
    # which depend on the backend: counted as not padding.
    pad_attention_pages: bool
    # Layers whose specs differ in what a merge reconciles share a group.
    merge_compatible_specs: bool
    # With the manager off, sliding-window MLA layers can be promoted to MLA. From 0.31 on the promotion passes
    # `bounded_replay`, which the MLA spec does not take.
    promote_sliding_mla: bool
    # MLA beside a sliding window whose pages cannot be unified: everything gets full allocation.
    full_allocation_fallback: bool
    # Block-outermost layouts pack mixed page sizes into groups.
    packed_groups: bool
    # In packed groups sliding windows and circular buffers are split like state, not only Mamba.
    split_windows_like_state: bool
    # Mamba cache mode `all`: a state for every block of the context.
    state_mode_all: bool
    # Hybrid MLA models: the block is a multiple of 128 tokens.
    mla_blocks_of_128: bool
    # Hybrid models: the block is a multiple of every backend's smallest kernel block.
    align_to_all_backends: bool
    # A state group with full CUDA graphs bounds max_num_seqs by the number of blocks.
    state_blocks_bound_seqs: bool


_SINCE: dict[str, Version] = {
    "reserve_concurrent_batches": (0, 26, 0),
    "log_capacity_by_concurrency": (0, 20, 1),
    "log_one_line": (0, 30, 0),
    "reserve_null_block": (0, 29, 0),
    "pad_state_pages": (0, 26, 0),
    "pad_attention_pages": (0, 29, 0),
    "merge_compatible_specs": (0, 27, 0),
    "full_allocation_fallback": (0, 27, 0),
    "packed_groups": (0, 29, 0),
    "split_windows_like_state": (0, 30, 0),
    "mla_blocks_of_128": (0, 27, 0),
    "align_to_all_backends": (0, 32, 0),
    "state_blocks_bound_seqs": (0, 20, 0),
}
_BEFORE: dict[str, Version] = {
    "promote_sliding_mla": (0, 31, 0),
    "state_mode_all": (0, 32, 0),
}


def rules_for(version: str) -> Rules:
    """Rules of a vLLM version such as `0.32`, `0.24.0` or `0.33.0.dev3+g4ba787e`.

    A version newer than the newest known one gets the newest rules, marked `assumed`; one older than the
    oldest known is a `ValueError`.
    """
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version.strip())
    if match is None:
        raise ValueError(f"vllm version {version!r} is not a version; accepted: like 0.32 or 0.24.1")
    major, minor, patch = match.groups()
    number = (int(major), int(minor), ANY_PATCH if patch is None else int(patch))
    if number < OLDEST:
        raise ValueError(f"vllm version {version} is too old; the KV cache rules are known from 0.18 to 0.33")
    switches = {name: number >= since for name, since in _SINCE.items()}
    switches |= {name: number < end for name, end in _BEFORE.items()}
    return Rules(version=version.strip(), assumed=number[:2] > NEWEST_KNOWN[:2], **switches)


NEWEST = rules_for("0.33")
