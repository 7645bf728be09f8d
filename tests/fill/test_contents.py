import pytest
import torch

from decodebench.fill import Constant, Content, GroupPages, LayerPages, Normal
from decodebench.kv.content import Numbers, PageContent, State, TypedPart, Zeros
from decodebench.kv.writes import GroupWrites

FORMATS = ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"]


def _fill(
    cache: torch.Tensor, content: Content, meaning: PageContent, blocks: list[int], rows: int = 4
) -> None:
    pages = LayerPages.of(
        "a",
        cache,
        num_blocks=len(cache),
        page_bytes=cache[0].numel() * cache.element_size(),
        rows_per_block=rows,
        content=meaning,
    )
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=rows)
    group.write(content, group.prepare([GroupWrites(whole=blocks)]))


@pytest.mark.parametrize("mean", [0.015, -3.0, 0.0, 1e30, -1e30])
@pytest.mark.parametrize("name", FORMATS)
def test_a_constant_is_rounded_to_the_format_and_clamped_to_its_finite_range(
    name: str, mean: float, device: torch.device
) -> None:
    dtype: torch.dtype = getattr(torch, name)
    cache = torch.full((6, 2, 4, 16 * dtype.itemsize), 0xFF, dtype=torch.uint8, device=device)
    _fill(cache, Constant(mean), Numbers(name), [1, 2, 5])
    numbers = cache[[1, 2, 5]].view(dtype).to(torch.float64)
    limits = torch.finfo(dtype)
    expected = torch.tensor(min(max(mean, limits.min), limits.max), dtype=torch.float64).to(dtype)
    assert bool((numbers == expected.to(torch.float64).to(device)).all())
    assert bool((cache[[0, 3, 4]] == 0xFF).all())


@pytest.mark.parametrize("name", FORMATS)
def test_normal_numbers_have_the_mean_and_deviation_asked_for(name: str, device: torch.device) -> None:
    dtype: torch.dtype = getattr(torch, name)
    cache = torch.full((40, 2, 4, 64 * dtype.itemsize), 0xFF, dtype=torch.uint8, device=device)
    _fill(cache, Normal(0.5, 2.0, seed=7), Numbers(name), list(range(1, 40)))
    numbers = cache[1:].view(dtype).double()
    assert bool(numbers.isfinite().all())
    assert abs(float(numbers.mean()) - 0.5) < 0.1
    assert abs(float(numbers.std()) - 2.0) < 0.1


def test_normal_pages_of_blocks_layers_and_fills_differ_and_the_seed_decides_them() -> None:
    def filled(seed: int) -> torch.Tensor:
        caches = torch.zeros(2, 32, 1, 4, 16)
        layers = [
            LayerPages.of(
                str(i), cache, num_blocks=32, page_bytes=256, rows_per_block=4, content=Numbers("float32")
            )
            for i, cache in enumerate(caches)
        ]
        content = Normal(0.0, 1.0, seed)
        content.prepare(layers)
        group = GroupPages.of(layers, block_size=4)
        for blocks in ([1, 2, 3, 4], [9, 11]):
            group.write(content, group.prepare([GroupWrites(whole=blocks)]))
        return caches

    ours = filled(1)
    assert torch.equal(ours, filled(1))
    assert not torch.equal(ours, filled(2))
    pages = ours[:, [1, 2, 3, 4]].flatten(0, 1).flatten(1)
    assert len(pages.unique(dim=0)) > len(pages) // 2
    assert not torch.equal(ours[0, 1:5], ours[1, 1:5])


def test_more_blocks_than_the_bank_has_pages_are_all_filled() -> None:
    cache = torch.full((64, 1, 4, 16), float("nan"))
    _fill(
        cache,
        Normal(0.0, 1.0, seed=1, bank_bytes=3 * 256),
        Numbers("float32"),
        [*range(1, 40), 50, 52, 54, 56, 58],
    )
    assert bool(cache[1:40].isfinite().all())
    assert bool(cache[50:59:2].isfinite().all())
    assert bool(cache[51:59:2].isnan().all())
    assert torch.equal(cache[1], cache[4])  # three pages, round and round


def test_a_state_is_typed_by_its_parts_inside_the_raw_page(device: torch.device) -> None:
    cache = torch.full((4, 1, 1, 200), -1, dtype=torch.int8, device=device)
    parts = (
        TypedPart("bfloat16", (3, 7)),
        TypedPart("float32", (30,)),
    )  # 42 bytes, so the second part is unaligned
    _fill(cache, Constant(0.5), State(parts), [2], rows=1)
    page = cache[2].flatten().cpu()
    assert bool((page[:42].clone().view(torch.bfloat16) == 0.5).all())
    assert bool((page[42:162].clone().view(torch.float32) == 0.5).all())
    assert not page[162:].any()


def test_a_circular_buffer_is_zero_whatever_the_mean(device: torch.device) -> None:
    """Case F6: an int64 position and four bfloat16 keys a row."""
    cache = torch.full((4, 1, 8, 16), 0xFF, dtype=torch.uint8, device=device)
    _fill(cache, Constant(0.015), Zeros(), [1, 3], rows=1)
    assert bool((cache[[1, 3], 0, :, :8].contiguous().view(torch.int64) == 0).all())
    assert not cache[[1, 3]].any()
    assert bool((cache[[0, 2]] == 0xFF).all())


@pytest.mark.parametrize("make", [lambda: Constant(float("nan")), lambda: Normal(0.0, -1.0, 0)])
def test_numbers_that_cannot_be_drawn_are_refused_by_name(make) -> None:
    with pytest.raises(ValueError, match="fill_"):
        make()
