"""What blocks must hold after a write: said by the writer, checked by an audit."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """Block `blocks[i]` of `target` must hold page `sources[i]` of `source`, or zero if there is no source."""

    target: torch.Tensor  # [block, ...]
    blocks: torch.Tensor
    source: torch.Tensor | None = None  # [page, ...]
    sources: torch.Tensor | None = None
