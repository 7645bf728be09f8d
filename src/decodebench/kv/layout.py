"""Order of the dimensions of the KV cache in memory: L layer, B block, H head slot, N state, C content.

Source: vLLM 0.32 `v1/kv_cache_layout.py`. The engine resolves one layout from what its attention backends
support; most give LBNHC, DeepSeek-V4's indexer only BLHNC or BLNHC.
"""

from enum import Enum


class Layout(Enum):
    """One of vLLM's layouts; the value lists the dimensions from outermost to innermost."""

    LBHNC = "LBHNC"
    LBNHC = "LBNHC"
    LHBNC = "LHBNC"
    BLHNC = "BLHNC"
    BLNHC = "BLNHC"
    BHLNC = "BHLNC"

    @property
    def is_block_outermost(self) -> bool:
        """A block holds the pages of all layers of its group side by side."""
        return self.value[0] == "B"

    @property
    def is_layer_outermost(self) -> bool:
        """Every layer has a region of its own."""
        return self.value[0] == "L"

    @property
    def is_page_contiguous(self) -> bool:
        """The bytes of one page are one contiguous run."""
        return set(self.value[:2]) == {"L", "B"}
