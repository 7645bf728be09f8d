from hypothesis import given
from hypothesis import strategies as st

from decodebench.fill.layout import ByteBox, PageLayout
from decodebench.kv.content import Zeros


@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_row_boxes_cover_a_row_range_once_with_at_most_three_boxes(
    kernel_blocks: int, rows: int, data
) -> None:
    box = ByteBox(0, (kernel_blocks, rows, 1, 4), (rows * 4, 4, 4, 1))
    layout = PageLayout(Zeros(), kernel_blocks, rows, box, (box,))
    first = data.draw(st.integers(0, layout.rows))
    end = data.draw(st.integers(0, layout.rows))
    boxes = layout.row_boxes(first, end)
    covered = [
        kernel * rows + row
        for kernels, inner in boxes
        for kernel in range(kernels.start, kernels.stop)
        for row in range(inner.start, inner.stop)
    ]
    assert sorted(covered) == list(range(first, end))
    assert len(boxes) <= 3
