"""Which new blocks the engine zeroes before use.

Source: vLLM 0.32 `v1/kv_cache_interface.py KVCacheConfig.needs_kv_cache_zeroing` and
`v1/core/single_type_kv_cache_manager.py` (`_record_new_block_ids`). Blocks that an asynchronous load is said
to overwrite are left out by the scheduler (`get_loaded_kv_cache_group_ids`); a fill must write every byte of
those itself.
"""

from collections.abc import Sequence

from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.specs import AttentionSpec, CircularBuffer, MambaState


def zeroed_groups(groups: Sequence[KVCacheGroup]) -> list[bool]:
    """For each group, whether the engine zeroes its new blocks: attention groups, if any cache needs it."""
    needed = needs_zeroing(groups)
    return [
        needed
        and isinstance(group.representative, AttentionSpec)
        and not isinstance(group.representative, CircularBuffer)
        for group in groups
    ]


def needs_zeroing(groups: Sequence[KVCacheGroup]) -> bool:
    """State is read before it is fully written; mixed precisions decode another format's stale bytes."""
    specs = [spec for group in groups for _, spec in group.layer_specs]
    precisions = {(spec.dtype, spec.quant_mode) for spec in specs if isinstance(spec, AttentionSpec)}
    return any(isinstance(spec, MambaState) for spec in specs) or len(precisions) > 1
