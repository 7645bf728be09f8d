"""Which blocks a fill writes, prepared once for all layers of a group.

A run of neighbouring blocks is written in place by one operation on a slice, at memory speed. Each such operation
costs a fixed few microseconds (a kernel launch on a GPU), so short runs are better collected and written together by
one indexed operation. `IN_PLACE_BYTES` is where the two meet.
"""

from collections.abc import Collection, Iterable
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
    def of(cls, ids: Collection[int], device: torch.device, page_bytes: int) -> "BlockSet":
        """`ids` in any order, repeats allowed. The longest run of neighbours is always written in place."""
        runs = _runs_of(sorted(set(ids)))
        least = max(2, IN_PLACE_BYTES.get(device.type, IN_PLACE_BYTES_ACCELERATOR) // max(1, page_bytes))
        longest = max(runs, key=_length, default=(0, 0))
        if len(runs) > 1 and _length(longest) == 1:
            longest = (0, 0)
        in_place = tuple(run for run in runs if run == longest or _length(run) >= least)
        scattered = [
            block for run in runs if run != longest and _length(run) < least for block in range(*run)
        ]
        return cls(in_place, _to_device(torch.tensor(scattered, dtype=torch.int64), device), len(scattered))

    def every(self) -> torch.Tensor:
        """All ids in the order in which they are written; on the host."""
        return torch.cat([*(torch.arange(first, end) for first, end in self.runs), self.scattered.cpu()])

    @property
    def num_blocks(self) -> int:
        return self.num_scattered + sum(end - first for first, end in self.runs)


def _runs_of(blocks: list[int]) -> list[tuple[int, int]]:
    """Runs of neighbours in sorted, distinct block ids, as (first, end)."""
    runs: list[tuple[int, int]] = []
    first = end = blocks[0] if blocks else 0
    for block in blocks:
        if block != end:
            runs.append((first, end))
            first = block
        end = block + 1
    return [*runs, (first, end)] if blocks else []


def _length(run: tuple[int, int]) -> int:
    return run[1] - run[0]


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
    whole: set[int] = set()
    zero: set[int] = set()
    parts: dict[int, tuple[int, int]] = {}
    for each in writes:
        whole.update(each.whole)
        zero.update(each.zero)
        for part in each.partial:
            parts.setdefault(part.block_id, token_range(part, block_size))
    check_ids(whole | zero | parts.keys(), num_blocks)
    whole.update(block for block, tokens in parts.items() if tokens == (0, block_size))
    zero.update(block for block, tokens in parts.items() if tokens == (0, 0))
    by_tokens: dict[tuple[int, int], list[int]] = {}
    for block, tokens in parts.items():
        if tokens != (0, 0) and block not in whole:
            by_tokens.setdefault(tokens, []).append(block)
    zero -= whole.union(*by_tokens.values())
    return PreparedWrites(
        BlockSet.of(whole, device, page_bytes),
        tuple(
            PartialWrite(first, end, block_size, BlockSet.of(blocks, device, page_bytes))
            for (first, end), blocks in by_tokens.items()
        ),
        BlockSet.of(zero, device, page_bytes),
    )


def token_range(part: PartialBlock, block_size: int) -> tuple[int, int]:
    if not 0 <= part.first_token <= part.end_token <= block_size:
        raise ValueError(f"{part} lies outside of a block of {block_size} tokens")
    return part.first_token, part.end_token


def check_ids(ids: set[int], num_blocks: int) -> None:
    if ids and not 1 <= min(ids) <= max(ids) < num_blocks:
        raise ValueError(
            f"block ids {min(ids)} to {max(ids)} cannot be filled: the pool has blocks 1 to {num_blocks - 1}, "
            "and block 0 is the null block"
        )
