"""Copying pages between two places whose pages have the same words, without a loop over pages.

Three ways, by how the pages lie: a run of targets whose sources are a run as well is one slice copy; a run of targets
with sources anywhere is one gather into place; targets anywhere are gathered into a staging buffer and scattered.
The first two move every byte once, the last twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from decodebench.fill.runs import index_tensor, stretches

SLICE_BYTES = {"cpu": 1 << 16}
SLICE_BYTES_ACCELERATOR = 1 << 20
"""Bytes of a run in a layer from which on it is an operation of its own; on a CPU found with
`benchmarks/donor_bandwidth.py`."""
STAGING_BYTES = {"cpu": 1 << 20}
STAGING_BYTES_ACCELERATOR = 1 << 25
"""Bytes gathered at once: on a CPU what its second-level cache keeps until they are scattered."""


@dataclass(frozen=True, slots=True, eq=False)
class PagePairs:
    """Pages to copy, each with its target."""

    slices: tuple[tuple[int, int, int], ...]  # first target, first source, pages
    gathers: tuple[tuple[int, torch.Tensor], ...]  # first target, sources (int64, on their device)
    targets: torch.Tensor  # of what is left: int64, on the device of the targets
    sources: torch.Tensor
    num_pages: int

    @classmethod
    def of(
        cls,
        sources: Mapping[int, int],
        page_bytes: int,
        target_device: torch.device,
        source_device: torch.device,
    ) -> "PagePairs":
        """`sources` of each target."""
        target = sorted(sources)
        source = [sources[each] for each in target]
        least = _least_pages(page_bytes, target_device)
        slices: list[tuple[int, int, int]] = []
        gathers: list[tuple[int, int]] = []  # as positions in `target`, like `left`
        left: list[int] = []
        for first, end in stretches(target):
            if end - first < least and (first, end) != (0, len(target)):
                left += range(first, end)
                continue
            loose = first  # from here on not yet copied
            for a, b in stretches(source[first:end]):
                if b - a >= least or b - a == end - first:
                    if loose < first + a:
                        gathers.append((loose, first + a))
                    slices.append((target[first + a], source[first + a], b - a))
                    loose = first + b
            if loose < end:
                gathers.append((loose, end))
        return cls(
            tuple(slices),
            tuple((target[a], index_tensor(source[a:b]).to(source_device)) for a, b in gathers),
            index_tensor([target[at] for at in left]).to(target_device),
            index_tensor([source[at] for at in left]).to(source_device),
            len(target),
        )

    def every(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All targets and their sources, for reading back; on the host."""
        targets, sources = [self.targets.cpu()], [self.sources.cpu()]
        for to, start, count in self.slices:
            targets.append(torch.arange(to, to + count))
            sources.append(torch.arange(start, start + count))
        for to, gathered in self.gathers:
            targets.append(torch.arange(to, to + len(gathered)))
            sources.append(gathered.cpu())
        return torch.cat(targets), torch.cat(sources)


def _least_pages(page_bytes: int, device: torch.device) -> int:
    enough = _threshold(SLICE_BYTES, SLICE_BYTES_ACCELERATOR, device)
    return 1 if page_bytes >= 2 * enough else max(2, -(-enough // page_bytes))


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
    if pairs.slices:
        into, out_of = _as_int64(target), _as_int64(source)
        for to, start, count in pairs.slices:
            into[to : to + count].copy_(out_of[start : start + count], non_blocking=True)
    here = target.device == source.device
    for to, sources in pairs.gathers:
        if here:
            torch.index_select(source, 0, sources, out=target[to : to + len(sources)])
        else:
            targets = torch.arange(to, to + len(sources), device=target.device)
            _move_scattered(target, source, targets, sources, staging)
    if len(pairs.targets):
        move = _copy_scattered if here else _move_scattered
        move(target, source, pairs.targets, pairs.sources, staging)


def _as_int64(pages: torch.Tensor) -> torch.Tensor:
    """The widest words halved: torch copies slices of them a fifth faster (2.13 on a CPU; gathers are as fast)."""
    return pages.view(torch.int64) if pages.dtype == torch.complex128 else pages


def _copy_scattered(
    target: torch.Tensor, source: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor, staging: Staging
) -> None:
    room = staging.pages(source, source.device)
    for to, start in _batches(targets, sources, len(room)):
        gathered = room[: len(start)]
        torch.index_select(source, 0, start, out=gathered)
        target.index_copy_(0, to, gathered)


def _move_scattered(
    target: torch.Tensor, source: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor, staging: Staging
) -> None:
    """Between host and GPU: gathered where they are, sent in one piece, scattered where they go.

    NOTE: the host's buffer is used again for the next batch, so each batch waits for its transfer; only the fill's own
    thread does.
    """
    on_host = staging.pages(source, torch.device("cpu"), pinned=True)
    for to, start in _batches(targets, sources, len(on_host)):
        host = on_host[: len(start)]
        if source.is_cuda:
            host.copy_(source.index_select(0, start))
            target.index_copy_(0, to, host)
        else:
            torch.index_select(source, 0, start, out=host)
            target.index_copy_(0, to, host.to(target.device))


def _batches(
    targets: torch.Tensor, sources: torch.Tensor, at_once: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for first in range(0, len(targets), at_once):
        yield targets[first : first + at_once], sources[first : first + at_once]


def _threshold(known: dict[str, int], otherwise: int, device: torch.device) -> int:
    return known.get(device.type, otherwise)
