import pytest
import torch

from decodebench.fill import Constant, GroupPages, LayerPages, Written
from decodebench.kv.content import Numbers
from decodebench.kv.writes import GroupWrites
from tests.fill.pool import poisoned, typed

BF16 = torch.bfloat16


def _layer(name: str, cache: torch.Tensor, page_bytes: int, dtype: str = "bfloat16") -> LayerPages:
    return LayerPages.of(
        name, cache, num_blocks=len(cache), page_bytes=page_bytes, rows_per_block=4, content=Numbers(dtype)
    )


def test_layers_that_share_a_cache_are_written_once(device: torch.device) -> None:
    cache, other = (torch.zeros(8, 2, 4, 16, dtype=BF16, device=device) for _ in range(2))
    layers = [
        _layer("0", cache, 256),
        _layer("1", cache, 256),
        _layer("2", cache.view(cache.shape), 256),
        _layer("3", other, 256),
    ]
    group = GroupPages.of(layers, block_size=4)
    content = Constant(0.5)
    content.prepare(layers)
    assert group.write(content, group.prepare([GroupWrites(whole=[1, 5])])) == Written(pages=4, bytes=4 * 256)
    assert bool((cache[[1, 5]] == 0.5).all())
    assert bool((other[[1, 5]] == 0.5).all())


def test_layers_interleaved_in_blocks_are_apart() -> None:
    raw = poisoned(8 * 512)
    layers = [
        _layer(str(i), typed(raw, BF16, (8, 2, 4, 16), (256, 64, 16, 1), i * 128), 256) for i in range(2)
    ]
    assert len(GroupPages.of(layers, block_size=4).pages) == 2


@pytest.mark.parametrize(
    ("offset", "page_bytes", "dtype"),
    [(64, 256, "bfloat16"), (0, 256, "float16"), (128, 320, "bfloat16")],
    ids=["half a page apart", "other numbers", "padding reaches into the neighbour"],
)
def test_layers_that_share_bytes_but_not_the_page_are_refused_by_name(
    offset: int, page_bytes: int, dtype: str
) -> None:
    raw = poisoned(9 * 512)
    layers = [
        _layer("layers.0", typed(raw, BF16, (8, 2, 4, 16), (256, 64, 16, 1)), page_bytes),
        _layer("layers.1", typed(raw, BF16, (8, 2, 4, 16), (256, 64, 16, 1), offset), 256, dtype),
    ]
    with pytest.raises(ValueError, match=r"layers\.0 and layers\.1"):
        GroupPages.of(layers, block_size=4)


def test_tensors_made_in_inference_mode_are_filled_from_a_thread_outside_of_it() -> None:
    with torch.inference_mode():
        cache = torch.zeros(8, 2, 4, 16, dtype=BF16)
        layer = _layer("0", cache, 256)
        content = Constant(0.5)
        content.prepare([layer])
    group = GroupPages.of([layer], block_size=4)
    group.write(content, group.prepare([GroupWrites(whole=[1, 3, 5])]))
    assert bool((cache[[1, 3, 5]] == 0.5).all())
