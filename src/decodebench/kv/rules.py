"""What differs between vLLM versions in the rules of the KV cache; everything else in this room is the same
in all.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The version-dependent switches of grouping and capacity."""

    version: str
    reserve_concurrent_batches: bool = True


NEWEST = Rules(version="0.33")
