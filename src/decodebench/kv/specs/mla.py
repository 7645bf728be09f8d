"""Latent (MLA) caches: one vector per state and no separate V, full and sliding-window.

Sources: vLLM 0.32 `v1/kv_cache_interface.py MLAAttentionSpec`, `SlidingWindowMLASpec`. DeepSeek-V4 uses all
of it: compressed main caches, sparse-indexer rows, and compressor states as sliding windows of 4- and 8-token
blocks.
"""

from dataclasses import dataclass

from decodebench.kv.arithmetic import round_up
from decodebench.kv.specs.attention import AttentionSpec, FullAttention, SlidingWindow
from decodebench.kv.specs.base import LayerSpec

SPARSE = "sparse"
INDEXER = "indexer"


def _pad_to_alignment(spec: "MLA | SlidingWindowMLA") -> None:
    """Pad the page to `alignment`, as the engine does when it builds the spec."""
    if spec.alignment is None:
        return
    padded = round_up(spec.page_bytes_unpadded, spec.alignment)
    if padded != spec.page_bytes_unpadded:
        object.__setattr__(spec, "page_bytes_padded", padded)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA(FullAttention):
    """Latent rows of every token, or of every `tokens_per_state` tokens; `cache_role` INDEXER for
    sparse-index rows.
    """

    head_size_v: int = 0
    cache_dtype_str: str | None = None
    alignment: int | None = None  # bytes of which the page is a multiple; DeepSeek-V4 only
    model_version: str | None = None
    cache_role: str = SPARSE
    is_index_group_leader: bool = False
    non_causal_multi_token_decode: bool = False

    def __post_init__(self) -> None:
        AttentionSpec.__post_init__(self)
        _pad_to_alignment(self)

    @property
    def kind(self) -> str:
        return "mla_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowMLA(SlidingWindow):
    """Latent rows, or compressor states, of the last `sliding_window` tokens.

    `bounded_replay`: blocks are not prefix-cached; a hit replays the window instead.
    """

    head_size_v: int = 0
    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    bounded_replay: bool = False

    def __post_init__(self) -> None:
        AttentionSpec.__post_init__(self)
        _pad_to_alignment(self)

    @property
    def kind(self) -> str:
        return "sliding_window_mla"

    @property
    def prefix_cacheable(self) -> bool:
        return not self.bounded_replay

    def same_type_as(self, other: LayerSpec) -> bool:
        return (
            isinstance(other, SlidingWindowMLA)
            and other.sliding_window == self.sliding_window
            and other.bounded_replay == self.bounded_replay
        )
