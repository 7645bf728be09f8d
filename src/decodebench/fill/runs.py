"""Which blocks a fill writes, prepared once for all layers of a group.

A run of neighbouring blocks is written in place by one operation on a slice, at memory speed. Each such operation
costs a fixed few microseconds (a kernel launch on a GPU), so short runs are better collected and written together by
one indexed operation. `IN_PLACE_BYTES` is where the two meet.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from decodebench.kv.writes import GroupWrites, PartialBlock

IN_PLACE_BYTES = {"cpu": 1 << 20}
IN_PLACE_BYTES_ACCELERATOR = 1 << 22
"""Bytes of a run in a layer from which on a slice is written; on a CPU found with `benchmarks/fill_bandwidth.py`."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockSet:
    """Distinct block ids: long runs as (first, end), all others as one sorted index tensor on the device."""

    runs: tuple[tuple[int, int], ...]
    scattered: torch.Tensor  # int64
    num_scattered: int

    @classmethod
    def of(cls, ids: torch.Tensor, device: torch.device, page_bytes: int) -> "BlockSet":
        """`ids` sorted and distinct (`distinct`). The longest run of neighbours is always written in place."""
        if not len(ids):
            return cls((), ids.to(device), 0)
        first = torch.cat([_ZERO, (ids.diff() != 1).nonzero().flatten() + 1])  # where in `ids` a run starts
        lengths = torch.cat([first[1:], torch.tensor([len(ids)])]) - first
        least = max(2, IN_PLACE_BYTES.get(device.type, IN_PLACE_BYTES_ACCELERATOR) // max(1, page_bytes))
        in_place = lengths >= least
        longest = int(lengths.argmax())
        in_place[longest] = len(lengths) == 1 or int(lengths[longest]) > 1
        starts = ids[first[in_place]]
        runs = zip(starts.tolist(), (starts + lengths[in_place]).tolist(), strict=True)
        scattered = ids[~in_place.repeat_interleave(lengths)]
        return cls(tuple(runs), _to_device(scattered, device), len(scattered))

    def every(self) -> torch.Tensor:
        """All ids in the order in which they are written; on the host."""
        return torch.cat([*(torch.arange(first, end) for first, end in self.runs), self.scattered.cpu()])

    @property
    def num_blocks(self) -> int:
        return self.num_scattered + sum(end - first for first, end in self.runs)


def index_tensor(numbers: Sequence[int]) -> torch.Tensor:
    """int64 on the host. `torch.tensor` takes twenty times as long for a list, holding the interpreter lock."""
    return torch.frombuffer(array("q", numbers), dtype=torch.int64) if numbers else _ZERO[:0]


def distinct(ids: Sequence[int]) -> torch.Tensor:
    """`ids` sorted, each once."""
    return index_tensor(ids).sort().values.unique_consecutive()  # type: ignore[no-any-return, no-untyped-call]


_ZERO = torch.zeros(1, dtype=torch.int64)


def _to_device(ids: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return ids
    return ids.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True, slots=True, eq=False)
class PartialWrite:
    """Blocks that share one range of tokens: their rows get content, later rows and the padding zero."""

    first_token: int
    end_token: int
    block_size: int  # tokens of a block
    blocks: BlockSet


@dataclass(frozen=True, slots=True, eq=False)
class PreparedWrites:
    """What one fill writes in one group; every block is named by exactly one of the three."""

    whole: BlockSet
    partial: tuple[PartialWrite, ...]
    zero: BlockSet

    @property
    def num_blocks(self) -> int:
        return (
            self.whole.num_blocks
            + self.zero.num_blocks
            + sum(part.blocks.num_blocks for part in self.partial)
        )


def prepare_writes(
    writes: Iterable[GroupWrites],
    *,
    num_blocks: int,
    block_size: int,
    page_bytes: int,
    device: torch.device,
) -> PreparedWrites:
    """Merge the writes of several requests to one group; a block named more than once is written once.

    Named in several ways, a block is written whole rather than in part, and in part rather than zeroed; of several
    parts the first named counts. Raises ValueError for the null block (id 0), an id or a token range out of bounds.
    """
    whole: list[int] = []
    zero: list[int] = []
    parts: dict[int, tuple[int, int]] = {}
    for each in writes:
        whole += each.whole
        zero += each.zero
        for part in each.partial:
            parts.setdefault(part.block_id, token_range(part, block_size))
    whole += [block for block, tokens in parts.items() if tokens == (0, block_size)]
    zero += [block for block, tokens in parts.items() if tokens == (0, 0)]
    cut = [block for block, tokens in parts.items() if tokens not in ((0, 0), (0, block_size))]
    in_whole, in_zero, in_part = distinct(whole), distinct(zero), distinct(cut)
    for ids in (in_whole, in_zero, in_part):
        check_ids(ids, num_blocks)
    in_part = _without(in_part, in_whole)
    in_zero = _without(_without(in_zero, in_whole), in_part)
    by_tokens: dict[tuple[int, int], list[int]] = {}
    for block in in_part.tolist():
        by_tokens.setdefault(parts[block], []).append(block)
    return PreparedWrites(
        BlockSet.of(in_whole, device, page_bytes),
        tuple(
            PartialWrite(first, end, block_size, BlockSet.of(index_tensor(blocks), device, page_bytes))
            for (first, end), blocks in by_tokens.items()
        ),
        BlockSet.of(in_zero, device, page_bytes),
    )


def _without(ids: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return ids[~torch.isin(ids, others)] if len(ids) and len(others) else ids


def token_range(part: PartialBlock, block_size: int) -> tuple[int, int]:
    if not 0 <= part.first_token <= part.end_token <= block_size:
        raise ValueError(f"{part} lies outside of a block of {block_size} tokens")
    return part.first_token, part.end_token


def check_ids(ids: torch.Tensor, num_blocks: int) -> None:
    """Refuse the null block and blocks outside of the pool; `ids` sorted."""
    if len(ids) and not 1 <= ids[0] <= ids[-1] < num_blocks:
        raise ValueError(
            f"block ids {ids[0]} to {ids[-1]} cannot be filled: the pool has blocks 1 to {num_blocks - 1}, "
            "and block 0 is the null block"
        )
