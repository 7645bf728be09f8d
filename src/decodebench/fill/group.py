"""The pages of one KV cache group: its layers share block ids, so a fill prepares them once and writes each layer."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch

from decodebench.fill.base import Content
from decodebench.fill.pages import LayerPages, Pages
from decodebench.fill.runs import PreparedWrites, prepare_writes
from decodebench.kv.writes import GroupWrites


@dataclass(frozen=True, slots=True)
class Written:
    """What a fill wrote: pages (one block of one layer's storage) and the bytes of them."""

    pages: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class GroupPages:
    """Distinct pages of a group. Layers that share a KV cache are one entry, so each block is written once."""

    block_size: int  # tokens of a block
    pages: tuple[Pages, ...]

    @classmethod
    def of(cls, layers: Iterable[LayerPages], *, block_size: int) -> "GroupPages":
        """Raises ValueError, naming both layers, if two layers of the group own some of the same bytes but not all."""
        distinct: dict[tuple[int, int, int], tuple[str, Pages]] = {}
        for layer in layers:
            for pages in layer.pieces:
                name, known = distinct.setdefault(pages.address, (layer.layer, pages))
                if known.layout != pages.layout:
                    raise ValueError(_overlap(name, layer.layer))
        _check_disjoint(list(distinct.values()))
        return cls(block_size, tuple(pages for _, pages in distinct.values()))

    @property
    def device(self) -> torch.device:
        return self.pages[0].device

    @property
    def page_bytes(self) -> int:
        """Of the layer that owns most of a block."""
        return max(pages.page_bytes for pages in self.pages)

    def prepare(self, writes: Iterable[GroupWrites]) -> PreparedWrites:
        """Merge the writes of one step's requests; see `prepare_writes` for what it refuses."""
        return prepare_writes(
            writes,
            num_blocks=self.pages[0].num_blocks,
            block_size=self.block_size,
            page_bytes=self.page_bytes,
            device=self.device,
            in_rows=any(pages.layout.in_rows or pages.layout.kernel_blocks > 1 for pages in self.pages),
        )

    @torch.inference_mode()  # the engine's tensors may be inference tensors, written from a thread of ours
    def write(self, content: Content, writes: PreparedWrites) -> Written:
        """Write `content` into every layer, queued on the current stream."""
        num_bytes = sum(content.write(pages, writes) for pages in self.pages)
        return Written(writes.num_blocks * len(self.pages), num_bytes)


def _check_disjoint(named: list[tuple[str, Pages]]) -> None:
    """Dense pages of one storage, sorted by address, must not reach into the next ones."""
    named = sorted((each for each in named if each[1].layout.is_dense), key=lambda each: each[1].address)
    for (name, pages), (other_name, other) in pairwise(named):
        storage, base, stride = pages.address
        other_storage, other_base, _ = other.address
        end = base + (pages.num_blocks - 1) * stride + pages.page_bytes
        if other_storage == storage and other_base < end and (other_base - base) % stride < pages.page_bytes:
            raise ValueError(_overlap(name, other_name))


def _overlap(name: str, other: str) -> str:
    return (
        f"layers {name} and {other} of one KV cache group own some of the same bytes in different layouts; "
        "this vLLM version may need a newer decodebench"
    )
