import pytest
import torch

from decodebench.fill import LayerPages
from decodebench.kv.content import Numbers, PackedRows, PageContent, State, TypedPart, Zeros

F32 = Numbers("float32")
STATE = State((TypedPart("float32", (4,)), TypedPart("float32", (4,))))


def _tensor(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("cache", "content"),
    [
        (None, F32),
        ({"k": _tensor(8, 1, 4, 8)}, F32),
        ([], F32),
        ([_tensor(8, 4), None], STATE),
        ("cache", F32),
        (_tensor(7, 1, 4, 8), F32),  # not a multiple of num_blocks
        (_tensor(2, 8, 4, 2, 8), F32),  # blocks are not axis 0
        (_tensor(0, 1, 4, 8), F32),
        (_tensor(8, 1, 5, 8), F32),  # five rows where the spec has four
        (_tensor(1, 1, 4, 8).expand(8, 1, 4, 8), F32),  # blocks share memory
        ([_tensor(8, 4), _tensor(8, 5)], STATE),  # a part of another size
        ([_tensor(8, 4), _tensor(8, 4), _tensor(8, 4)], STATE),
        ([_tensor(8, 1, 4, 8), _tensor(8, 1, 4, 8)], F32),  # tensors apart that are no state
        (_tensor(8, 4), State((TypedPart("float32", (40,)),))),  # the state does not fit
        (_tensor(8, 2, 4, 33).transpose(0, 1).contiguous().transpose(0, 1), PackedRows("indexer_fp8", 132)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_read_as_pages_is_one_error_that_names_the_layer(
    cache: object, content: PageContent
) -> None:
    """Case F2."""
    with pytest.raises(ValueError, match=r"layer model\.layers\.3"):
        LayerPages.of(
            "model.layers.3", cache, num_blocks=8, page_bytes=128, rows_per_block=4, content=content
        )


@pytest.mark.parametrize("shape", [(8, 2, 4, 8), (8, 4, 16), (8, 64)])
def test_a_page_may_have_heads_no_heads_or_be_flat(shape: tuple[int, ...]) -> None:
    pages = LayerPages.of("a", _tensor(*shape), num_blocks=8, page_bytes=256, rows_per_block=4, content=F32)
    assert pages.pieces[0].layout.rows == 4
    assert pages.pieces[0].bytes_from(3) == 64


def test_state_tensors_that_share_a_page_are_one_piece_and_others_one_each() -> None:
    raw = torch.zeros(8, 16)
    shared = LayerPages.of(
        "a", [raw[:, :4], raw[:, 4:8]], num_blocks=8, page_bytes=64, rows_per_block=1, content=STATE
    )
    apart = LayerPages.of(
        "a", (_tensor(8, 4), _tensor(8, 4)), num_blocks=8, page_bytes=64, rows_per_block=1, content=STATE
    )
    assert [piece.page_bytes for piece in shared.pieces] == [64]
    assert [piece.page_bytes for piece in apart.pieces] == [16, 16]


def test_a_circular_buffer_with_heads_outside_blocks_is_readable() -> None:
    cache = _tensor(2, 8, 4, 8).transpose(0, 1)
    pages = LayerPages.of("ring", cache, num_blocks=8, page_bytes=256, rows_per_block=1, content=Zeros())
    assert pages.pieces[0].page_bytes == 256
