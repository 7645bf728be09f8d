"""Cut blocks of a backend that does not store a block by rows, as vLLM's own CPU attention writes and reads them."""

import pytest
import torch

from decodebench.fill import Constant, GroupPages, LayerPages
from decodebench.kv.content import Numbers
from decodebench.kv.writes import GroupWrites, PartialBlock
from tests.fill.pool import POISON

ops = pytest.importorskip("vllm._custom_ops")
if not hasattr(torch.ops._C, "cpu_attn_reshape_and_cache"):
    pytest.skip("this vLLM is not built for the CPU", allow_module_level=True)

BLOCKS, HEADS, ROWS, HEAD = 4, 2, 32, 64
PAGE = HEADS * ROWS * 2 * HEAD * 2  # bytes of keys and values in bfloat16


def _engine_writes(cache: torch.Tensor, block: int, tokens: range, number: float) -> None:
    """Let vLLM put keys and values, all of them `number`, into `tokens` of `block`."""
    keys = torch.full((len(tokens), HEADS, HEAD), number, dtype=torch.bfloat16)
    halves = cache.view(BLOCKS, HEADS, ROWS * 2, HEAD).chunk(2, dim=2)
    slots = torch.tensor([block * ROWS + token for token in tokens])
    ops.cpu_attn_reshape_and_cache(keys, keys.clone(), *halves, slots, "vec")


def _filled(part: PartialBlock, in_rows: bool) -> torch.Tensor:
    raw = torch.full((BLOCKS * PAGE,), POISON, dtype=torch.uint8)
    cache = raw.view(torch.bfloat16).view(BLOCKS, HEADS, ROWS, 2 * HEAD)
    layer = LayerPages.of(
        "attn",
        cache,
        num_blocks=BLOCKS,
        page_bytes=PAGE,
        rows_per_block=ROWS,
        content=Numbers("bfloat16", in_rows),
    )
    content = Constant(0.5)
    content.prepare([layer])
    group = GroupPages.of([layer], block_size=ROWS)
    group.write(content, group.prepare([GroupWrites(partial=[part])]))
    return cache


@pytest.mark.parametrize("end", range(1, ROWS))
def test_every_number_the_engine_reads_of_a_filled_token_is_the_fills(end: int) -> None:
    marks = torch.zeros(BLOCKS, HEADS, ROWS, 2 * HEAD, dtype=torch.bfloat16)
    _engine_writes(marks, 2, range(end), 1.0)
    cache = _filled(PartialBlock(2, 0, end), in_rows=False)
    assert bool((cache[marks == 1.0] == 0.5).all())
    assert bool(cache[2].isfinite().all())
    assert bool(cache[[0, 1, 3]].isnan().all())


def test_rows_are_not_where_the_shape_puts_them() -> None:
    """Why `in_rows` exists: written by rows, a cut block misses numbers that the engine reads."""
    marks = torch.zeros(BLOCKS, HEADS, ROWS, 2 * HEAD, dtype=torch.bfloat16)
    _engine_writes(marks, 2, range(5), 1.0)
    cache = _filled(PartialBlock(2, 0, 5), in_rows=True)
    assert not bool((cache[marks == 1.0] == 0.5).all())


def test_a_block_that_holds_computed_tokens_is_refused_rather_than_damaged() -> None:
    with pytest.raises(ValueError, match="let the computed tokens end with a block"):
        _filled(PartialBlock(2, 5, 20), in_rows=False)
