"""Packed rows decode to finite numbers with sane scales; the decoders here are written from vLLM's readers."""

import pytest
import torch

from decodebench.fill import Constant, Content, GroupPages, LayerPages, Normal
from decodebench.fill.packed import LAYOUTS, quantise
from decodebench.kv.content import PackedRows
from decodebench.kv.writes import GroupWrites
from tests.fill.pool import POISON

E4M3_NAN = (0x7F, 0xFF)


def e4m3(codes: torch.Tensor) -> torch.Tensor:
    return codes.contiguous().view(torch.float8_e4m3fn).float()


def decode_v4(block: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`DequantizeAndGatherKCacheKernel`: key part, scales and code bytes of one block's flat bytes."""
    data, scales = block[: rows * 576].view(rows, 576), block[rows * 576 : rows * 584].view(rows, 8)
    scale = torch.exp2(scales[:, :7].float() - 127)
    keys = (e4m3(data[:, :448]).view(rows, 7, 64) * scale.unsqueeze(-1)).flatten(1)
    rope = data[:, 448:].contiguous().view(torch.bfloat16).float()
    return torch.cat((keys, rope), 1), scale, data[:, :448]


def decode_v32(block: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The format note of `flashmla_sparse.py`."""
    data = block[: rows * 656].view(rows, 656)
    scale = data[:, 512:528].contiguous().view(torch.float32)
    keys = (e4m3(data[:, :512]).view(rows, 4, 128) * scale.unsqueeze(-1)).flatten(1)
    rope = data[:, 528:].contiguous().view(torch.bfloat16).float()
    return torch.cat((keys, rope), 1), scale, data[:, :512]


def decode_indexer(block: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The FP8 indexer kernel: values of all rows, then one float32 scale a row."""
    data, scales = block[: rows * 128].view(rows, 128), block[rows * 128 : rows * 132].contiguous()
    scale = scales.view(torch.float32).unsqueeze(1)
    return e4m3(data) * scale, scale, data


DECODERS = {"fp8_ds_mla_v4": decode_v4, "fp8_ds_mla_v32": decode_v32, "indexer_fp8": decode_indexer}


def test_every_layout_has_a_decoder_here() -> None:
    assert DECODERS.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("split", [1, 2], ids=["whole", "kernel blocks"])
@pytest.mark.parametrize("content", [Constant(0.015), Normal(0.0, 1.0, seed=3), Normal(0.0, 1e5, seed=3)])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_row_decodes_to_the_drawn_numbers(
    name: str, content: Content, split: int, device: torch.device
) -> None:
    """Case F7."""
    row_bytes, rows = LAYOUTS[name].row_bytes, 4
    shape = (3 * split, 1, rows // split, row_bytes)
    cache = torch.full(shape, POISON, dtype=torch.uint8, device=device)
    pages = LayerPages.of(
        "mla",
        cache,
        num_blocks=3,
        page_bytes=rows * row_bytes,
        rows_per_block=rows,
        content=PackedRows(name, row_bytes),
    )
    content.prepare([pages])
    group = GroupPages.of([pages], block_size=rows)
    group.write(content, group.prepare([GroupWrites(whole=[1, 2])]))
    assert bool((cache[:split] == POISON).all())
    for kernel_block in cache[split:].cpu():
        numbers, scale, codes = DECODERS[name](kernel_block.flatten(), rows // split)
        assert bool(numbers.isfinite().all())
        assert bool((scale > 2.0**-40).all())
        assert bool((scale < 2.0**40).all())
        assert not any(bool((codes == nan).any()) for nan in E4M3_NAN)
        assert bool((numbers != 0).float().mean() > 0.95)
        if isinstance(content, Constant):
            torch.testing.assert_close(numbers, torch.full_like(numbers, 0.015), rtol=0.07, atol=0)
        else:
            assert 0.8 < float(numbers.std()) / content.std < 1.2


def test_a_v4_page_equals_what_the_engine_writes_for_the_same_numbers() -> None:
    """vLLM's CPU kernel inserts rows of bfloat16 numbers at position 0 (no rotation); ours encodes the same numbers."""
    platforms = pytest.importorskip("vllm.platforms")
    if not platforms.current_platform.is_cpu():
        pytest.skip("the kernel belongs to vLLM's CPU build")
    platforms.current_platform.import_kernels()
    if not hasattr(torch.ops._C, "fused_qnorm_rope_kv_insert_cpu"):
        pytest.skip("this vLLM has no CPU kernel for DeepSeek-V4 rows")
    rows = 4
    numbers = torch.randn(rows, 512, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    page = torch.zeros(2, rows * 584, dtype=torch.uint8)
    cos_sin = torch.cat((torch.ones(1, 32), torch.zeros(1, 32)), 1)
    torch.ops._C.fused_qnorm_rope_kv_insert_cpu(
        torch.zeros(rows, 1, 512, dtype=torch.bfloat16),
        numbers,
        torch.zeros(rows, dtype=torch.int64),
        page,
        torch.arange(rows, 2 * rows),
        cos_sin,
        1,
        1e-6,
        rows,
    )
    data, scales = LAYOUTS["fp8_ds_mla_v4"].encode(numbers.float())
    assert torch.equal(page[1], torch.cat((data.flatten(), scales.flatten())))


def test_an_unknown_layout_or_a_row_of_another_size_names_the_layer() -> None:
    cache = torch.zeros(2, 1, 4, 584, dtype=torch.uint8)
    for content in (PackedRows("nvfp4", 584), PackedRows("fp8_ds_mla_v4", 600)):
        with pytest.raises(ValueError, match=r"layers\.3"):
            LayerPages.of(
                "layers.3", cache, num_blocks=2, page_bytes=4 * 584, rows_per_block=4, content=content
            )


@pytest.mark.parametrize("name", sorted(LAYOUTS))
@pytest.mark.parametrize("number", [0.0, 1e-40, 3e38, -3e38])
def test_rows_of_any_one_number_have_no_nan_code_and_a_sane_scale(name, number):
    layout = LAYOUTS[name]
    codes, exponents = quantise(torch.full((2, layout.numbers // 64 * 64), number), 64)
    assert not ((codes & 0x7F) == 0x7F).any()
    assert exponents.isfinite().all()
    assert ((exponents >= -126) & (exponents <= 127)).all()
    assert all(
        field.shape == (2, size)
        for field, size in zip(
            layout.encode(torch.full((2, layout.numbers), number)), layout.field_bytes, strict=True
        )
    )
