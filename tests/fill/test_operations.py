"""What a fill costs in operations and memory (cases F1 and F16); speed is `benchmarks/fill_bandwidth.py`."""

from collections import Counter

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from decodebench.fill import Constant, Content, GroupPages, LayerPages, Normal
from decodebench.kv.content import Numbers, PackedRows, PageContent
from decodebench.kv.writes import GroupWrites, PartialBlock

LAYERS, BLOCKS = 2, 1024
CONTENTS = [lambda: Constant(0.015), lambda: Normal(0.0, 1.0, seed=1)]


class Writes(TorchDispatchMode):
    """Counts operations that write into a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.is_mutable:
            self.names[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def _group(content: Content, meaning: PageContent, row: int, dtype: torch.dtype) -> GroupPages:
    layers = [
        LayerPages.of(
            str(i),
            torch.zeros(BLOCKS, 1, 16, row, dtype=dtype),
            num_blocks=BLOCKS,
            page_bytes=16 * row * dtype.itemsize,
            rows_per_block=16,
            content=meaning,
        )
        for i in range(LAYERS)
    ]
    content.prepare(layers)
    return GroupPages.of(layers, block_size=16)


def _operations(group: GroupPages, content: Content, writes: GroupWrites) -> Counter[str]:
    prepared = group.prepare([writes])
    with Writes() as log:
        group.write(content, prepared)
    return log.names


KINDS = pytest.mark.parametrize(
    ("meaning", "row", "dtype"),
    [(Numbers("bfloat16"), 64, torch.bfloat16), (PackedRows("fp8_ds_mla_v4", 584), 584, torch.uint8)],
    ids=["numbers", "packed"],
)


@KINDS
@pytest.mark.parametrize("make", CONTENTS)
def test_a_contiguous_run_is_one_in_place_write_a_layer(make, meaning, row, dtype) -> None:
    content = make()
    group = _group(content, meaning, row, dtype)
    names = _operations(group, content, GroupWrites(whole=range(10, 74)))
    most = (
        LAYERS if isinstance(content, Constant) else 2 * LAYERS
    )  # a normal fill may come round its bank once
    assert LAYERS <= names.total() <= most
    assert not any("index" in name for name in names)


@KINDS
def test_gaps_add_one_indexed_write_a_layer_however_many_they_are(meaning, row, dtype) -> None:
    content = Constant(0.015)
    group = _group(content, meaning, row, dtype)
    names = _operations(group, content, GroupWrites(whole=[*range(10, 74), *range(100, 1000, 7)]))
    assert sum(count for name, count in names.items() if "index" in name) == LAYERS
    assert names.total() == 2 * LAYERS


def test_256_requests_of_one_context_cost_no_more_operations_than_one() -> None:
    """Case F16: a whole block and a tail of nine tokens each, all apart."""
    content = Constant(0.015)
    group = _group(content, Numbers("bfloat16"), 64, torch.bfloat16)
    counts = [
        _operations(
            group,
            content,
            GroupWrites(
                whole=range(1, 2 * requests, 2),
                partial=[PartialBlock(2 * i + 2, 0, 9) for i in range(requests)],
            ),
        ).total()
        for requests in (2, 256)
    ]
    assert counts[0] == counts[1] == 3 * LAYERS  # whole blocks, rows of the tails, zeros behind them


@KINDS
@pytest.mark.parametrize("make", CONTENTS)
def test_a_fill_allocates_nothing_in_proportion_to_its_blocks(make, meaning, row, dtype) -> None:
    content = make()
    group = _group(content, meaning, row, dtype)
    page_bytes = group.pages[0].page_bytes
    prepared = group.prepare([GroupWrites(whole=[*range(10, 500), *range(501, 1000, 2)])])
    group.write(content, prepared)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        group.write(content, prepared)
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in log.key_averages())
    assert allocated < 16 * page_bytes
