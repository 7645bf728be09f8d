"""Which blocks a fill writes, prepared once for all layers of a group.

A run of neighbouring blocks is written in place by one operation on a slice, at memory speed. Each such operation
costs a fixed few microseconds (a kernel launch on a GPU), so short runs are better collected and written together by
one indexed operation. `IN_PLACE_BYTES` is where the two meet.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    def of(cls, ids: Sequence[int], device: torch.device, page_bytes: int) -> "BlockSet":
        """`ids` sorted and distinct (`distinct`). The longest run of neighbours is always written in place."""
        runs = [(ids[first], ids[end - 1] + 1) for first, end in stretches(ids)]
        least = max(2, IN_PLACE_BYTES.get(device.type, IN_PLACE_BYTES_ACCELERATOR) // max(1, page_bytes))
        longest = max(runs, key=_length, default=(0, 0))
        if len(runs) > 1 and _length(longest) == 1:
            longest = (0, 0)
        in_place: list[tuple[int, int]] = []
        rest: list[int] = []
        for run in runs:
            if run == longest or _length(run) >= least:
                in_place.append(run)
            else:
                rest += range(*run)
        scattered = index_tensor(rest)
        return cls(tuple(in_place), _to_device(scattered, device), len(scattered))

    def every(self) -> torch.Tensor:
        """All ids in the order in which they are written; on the host."""
        return torch.cat([*(torch.arange(first, end) for first, end in self.runs), self.scattered.cpu()])

    @property
    def num_blocks(self) -> int:
        return self.num_scattered + sum(end - first for first, end in self.runs)


def index_tensor(numbers: Sequence[int]) -> torch.Tensor:
    """int64 on the host. `torch.tensor` takes twenty times as long for a list, holding the interpreter lock."""
    if not numbers:
        return torch.empty(0, dtype=torch.int64)
    return torch.frombuffer(array("q", numbers), dtype=torch.int64)


def distinct(ids: Sequence[int]) -> list[int]:
    """`ids` sorted, each once.

    NOTE: plain Python, as all that prepares a fill: every operation on a tensor gives the interpreter lock away and
    waits to have it back, beside an engine that holds it for most of a step (`benchmarks/fill_interference.py`).
    """
    return sorted(set(ids))


def stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches in which each number is the one before it and 1, as positions [first, end)."""
    if not numbers:
        return []
    breaks = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    return list(zip([0, *breaks], [*breaks, len(numbers)], strict=True))


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
    in_rows: bool = True,
) -> PreparedWrites:
    """Merge the writes of several requests to one group; a block named more than once is written once.

    Without `in_rows` a block whose first tokens are written is written whole, as `PageLayout.rows_of` would have it
    too, but here in one operation with all other whole blocks of a layer.

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
            parts.setdefault(part.block_id, token_range(part, block_size, in_rows))
    check_ids(whole | zero | parts.keys(), num_blocks)
    whole.update(block for block, tokens in parts.items() if tokens == (0, block_size))
    zero.update(block for block, tokens in parts.items() if tokens == (0, 0))
    by_tokens: dict[tuple[int, int], list[int]] = {}
    for block in sorted(parts.keys() - whole):
        if parts[block] != (0, 0):
            by_tokens.setdefault(parts[block], []).append(block)
    zero -= whole.union(*by_tokens.values())
    return PreparedWrites(
        BlockSet.of(sorted(whole), device, page_bytes),
        tuple(
            PartialWrite(first, end, block_size, BlockSet.of(blocks, device, page_bytes))
            for (first, end), blocks in by_tokens.items()
        ),
        BlockSet.of(sorted(zero), device, page_bytes),
    )


def token_range(part: PartialBlock, block_size: int, in_rows: bool = True) -> tuple[int, int]:
    """The tokens of a part; where a block can only be written whole (`in_rows`), all of a block it begins."""
    if not 0 <= part.first_token <= part.end_token <= block_size:
        raise ValueError(f"{part} lies outside of a block of {block_size} tokens")
    if not in_rows and part.first_token == 0 < part.end_token:
        return 0, block_size
    return part.first_token, part.end_token


def check_ids(ids: Collection[int], num_blocks: int) -> None:
    """Refuse the null block and blocks outside of the pool."""
    if ids and not 1 <= min(ids) <= max(ids) < num_blocks:
        raise ValueError(
            f"block ids {min(ids)} to {max(ids)} cannot be filled: the pool has blocks 1 to {num_blocks - 1}, "
            "and block 0 is the null block"
        )
