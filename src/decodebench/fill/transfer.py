"""Copying pages between two places whose pages have the same words: neighbours in slices, the others in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

IN_PLACE_BYTES = {"cpu": 1 << 18}
IN_PLACE_BYTES_ACCELERATOR = 1 << 20
"""Bytes of a run in a layer from which on it is a slice copy of its own; on a CPU found with
`benchmarks/donor_bandwidth.py`."""
STAGING_BYTES = {"cpu": 1 << 18}
STAGING_BYTES_ACCELERATOR = 1 << 25
"""Bytes gathered at once: on a CPU what its second-level cache keeps until they are scattered."""


@dataclass(frozen=True, slots=True, eq=False)
class PagePairs:
    """Pages to copy, each with its target: long runs as (first target, first source, pages), the others as indices."""

    runs: tuple[tuple[int, int, int], ...]
    targets: torch.Tensor  # int64, on the device of the targets
    sources: torch.Tensor  # int64, on the device of the sources
    num_pages: int

    @classmethod
    def of(
        cls,
        targets: Sequence[int],
        sources: Sequence[int],
        page_bytes: int,
        target_device: torch.device,
        source_device: torch.device,
    ) -> "PagePairs":
        """Pairs in any order; targets are distinct."""
        target, order = torch.tensor(targets, dtype=torch.int64).sort()
        source = torch.tensor(sources, dtype=torch.int64)[order]
        broken = (target.diff() != 1) | (source.diff() != 1)
        starts = torch.cat((torch.zeros(1, dtype=torch.int64), broken.nonzero()[:, 0] + 1))
        lengths = torch.cat((starts, torch.tensor([len(target)]))).diff()
        least = max(
            2, _threshold(IN_PLACE_BYTES, IN_PLACE_BYTES_ACCELERATOR, target_device) // max(1, page_bytes)
        )
        long = (lengths >= least) | (lengths == len(target))
        runs = tuple(
            (int(target[start]), int(source[start]), length)
            for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True)
        )
        scattered = (~long).repeat_interleave(lengths)
        return cls(
            runs,
            target[scattered].to(target_device),
            source[scattered].to(source_device),
            len(target),
        )


@dataclass(slots=True)
class Staging:
    """Buffers that scattered pages pass through; one thread at a time uses them."""

    _buffers: dict[tuple[torch.device, bool], torch.Tensor] = field(default_factory=dict)

    def pages(self, like: torch.Tensor, device: torch.device, pinned: bool = False) -> torch.Tensor:
        """Room for as many pages like those of `like` as are gathered at once, at least one."""
        page_bytes = like[0].numel() * like.element_size()
        room = _threshold(STAGING_BYTES, STAGING_BYTES_ACCELERATOR, like.device if not pinned else device)
        at_once = max(1, room // page_bytes)
        key = (device, pinned)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < at_once * page_bytes:
            buffer = torch.empty(at_once * page_bytes, dtype=torch.uint8, device=device, pin_memory=pinned)
            self._buffers[key] = buffer
        return buffer[: at_once * page_bytes].view(like.dtype).view(at_once, *like.shape[1:])


def copy_pages(target: torch.Tensor, source: torch.Tensor, pairs: PagePairs, staging: Staging) -> None:
    """Copy pages of `source` (axis 0) into pages of `target`; either may be on a GPU."""
    for to, start, count in pairs.runs:
        target[to : to + count].copy_(source[start : start + count], non_blocking=True)
    if not len(pairs.targets):
        return
    if target.device == source.device:
        _copy_scattered(target, source, pairs, staging)
    else:
        _move_scattered(target, source, pairs, staging)


def _copy_scattered(target: torch.Tensor, source: torch.Tensor, pairs: PagePairs, staging: Staging) -> None:
    room = staging.pages(source, source.device)
    for to, start in _batches(pairs, len(room)):
        gathered = room[: len(start)]
        torch.index_select(source, 0, start, out=gathered)
        target.index_copy_(0, to, gathered)


def _move_scattered(target: torch.Tensor, source: torch.Tensor, pairs: PagePairs, staging: Staging) -> None:
    """Between host and GPU: gathered where they are, sent in one piece, scattered where they go.

    NOTE: the host's buffer is used again for the next batch, so each batch waits for its transfer; only the fill's own
    thread does.
    """
    on_host = staging.pages(source, torch.device("cpu"), pinned=True)
    for to, start in _batches(pairs, len(on_host)):
        host = on_host[: len(start)]
        if source.is_cuda:
            host.copy_(source.index_select(0, start))
            target.index_copy_(0, to, host)
        else:
            torch.index_select(source, 0, start, out=host)
            target.index_copy_(0, to, host.to(target.device))


def _batches(pairs: PagePairs, at_once: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for first in range(0, len(pairs.targets), at_once):
        yield pairs.targets[first : first + at_once], pairs.sources[first : first + at_once]


def _threshold(known: dict[str, int], otherwise: int, device: torch.device) -> int:
    return known.get(device.type, otherwise)
