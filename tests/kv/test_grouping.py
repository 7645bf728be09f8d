"""Groups and padding by the engine's rule, and the refusals. `tests/oracle` compares with the engine itself."""

from collections import Counter
from dataclasses import replace

import pytest

from decodebench.kv.errors import CannotStart
from decodebench.kv.grouping import group_layers
from decodebench.kv.layout import Layout
from decodebench.kv.packing import least_padding_divisor
from decodebench.kv.rules import rules_for
from decodebench.kv.specs import MLA, ChunkedLocal, FullAttention, MambaState, SlidingWindow

SHAPE = {"block_size": 16, "num_kv_heads": 8, "head_size": 64, "dtype": "bfloat16"}
FULL = FullAttention(**SHAPE)
WINDOW = SlidingWindow(**SHAPE, sliding_window=128)
STATE = MambaState(
    block_size=16,
    shapes=((64, 8),),
    dtypes=("float32",),
    cache_mode="align",
    page_bytes_padded=FULL.page_bytes,
)
OTHER = ChunkedLocal(**SHAPE, attention_chunk_size=8192)


def model(*counts):
    specs = [spec for spec, count in counts for _ in range(count)]
    return {f"layers.{i}": spec for i, spec in enumerate(specs)}


def shapes(groups):
    """(kind, layers, padding) -> number of such groups."""
    return Counter((group.kind, len(group.layer_names), group.padding_layers) for group in groups)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (((WINDOW, 18), (FULL, 18)), {("sliding_window", 18, 0): 1, ("full_attention", 18, 0): 1}),
        (((WINDOW, 18), (FULL, 19)), {("sliding_window", 18, 1): 1, ("full_attention", 19, 0): 1}),
        (((WINDOW, 12), (FULL, 17)), {("sliding_window", 12, 5): 1, ("full_attention", 17, 0): 1}),
        (
            ((STATE, 30), (FULL, 10), (WINDOW, 5), (OTHER, 1)),
            {
                ("mamba", 1, 0): 30,
                ("full_attention", 1, 0): 10,
                ("sliding_window", 1, 0): 5,
                ("chunked_local_attention", 1, 0): 1,
            },
        ),
        (
            ((WINDOW, 52), (FULL, 10)),
            {("sliding_window", 9, 1): 4, ("sliding_window", 8, 2): 2, ("full_attention", 10, 0): 1},
        ),
    ],
)
def test_layer_counts_give_the_groups_and_padding_of_the_rule(counts, expected):
    assert shapes(group_layers(model(*counts))) == expected


def test_layers_of_a_kind_are_dealt_out_to_its_groups_in_turn():
    first, second, _ = group_layers(model((WINDOW, 4), (FULL, 2)))
    assert first.layer_names == ("layers.0", "layers.2")
    assert second.layer_names == ("layers.1", "layers.3")


def test_a_smaller_page_that_divides_gets_more_tokens_a_block():
    wide = FullAttention(**{**SHAPE, "num_kv_heads": 16})
    window, full = group_layers(model((WINDOW, 1), (wide, 1)))
    assert (window.block_size, full.block_size) == (32, 16)
    assert window.page_bytes == full.page_bytes


class TestPagesThatDoNotDivide:
    """Heads of 256 and 512 with a 4-byte scale beside each: 16 x 260 and 16 x 516 bytes."""

    NARROW = SlidingWindow(**{**SHAPE, "state_content_bytes": 260}, sliding_window=128)
    WIDE = FullAttention(**{**SHAPE, "state_content_bytes": 516})

    def test_new_versions_pad_the_page_and_keep_the_block(self):
        narrow, wide = group_layers(model((self.NARROW, 1), (self.WIDE, 1)), rules=rules_for("0.32"))
        assert narrow.page_bytes == wide.page_bytes == 8 * 16 * 516
        assert narrow.block_size == 16
        assert narrow.representative.padding_bytes == 8 * 16 * (516 - 260)

    def test_old_versions_cannot_start_and_say_which_layer(self):
        with pytest.raises(CannotStart, match=r"0\.23.*cannot start.*layers\.0"):
            group_layers(model((self.NARROW, 1), (self.WIDE, 1)), rules=rules_for("0.23"))

    def test_mla_pages_are_never_padded(self):
        latent = MLA(block_size=16, num_kv_heads=1, head_size=576, dtype="bfloat16")
        with pytest.raises(CannotStart, match="mla_attention"):
            group_layers(model((latent, 1), (OTHER, 1)))


MLA_ROWS = MLA(block_size=16, num_kv_heads=1, head_size=576, dtype="bfloat16")
DRAFT = SlidingWindow(block_size=16, num_kv_heads=2, head_size=64, dtype="bfloat16", sliding_window=128)


def test_where_no_page_size_is_common_a_window_beside_mla_is_allocated_in_full():
    wide = replace(DRAFT, num_kv_heads=6)  # the smaller page is MLA's: it is neither a divisor nor padded
    assert wide.page_bytes > MLA_ROWS.page_bytes
    assert wide.page_bytes % MLA_ROWS.page_bytes
    (group,) = group_layers(model((MLA_ROWS, 2), (wide, 2)))
    assert group.layer_names == ("layers.0", "layers.1", "layers.2", "layers.3")


def test_a_padded_page_that_more_tokens_do_not_fit_into_ends_the_start():
    """vLLM goes on with a full allocation where pages have no common size, but not from its own assertion."""
    rows = replace(MLA_ROWS, head_size=512)
    padded = replace(DRAFT, page_bytes_padded=rows.page_bytes // 2, block_size=8)
    with pytest.raises(CannotStart, match="below the"):
        group_layers(model((replace(DRAFT, block_size=8), 1), (padded, 1), (replace(rows, block_size=64), 1)))


def test_with_the_manager_off_local_layers_join_the_full_ones():
    (group,) = group_layers(model((WINDOW, 5), (FULL, 1)), hybrid_manager=False)
    assert group.kind == "full_attention"
    assert group.spec.sliding_window == 128
    assert len(group.layer_names) == 6


def test_with_the_manager_off_state_is_the_reason_for_a_refusal():
    with pytest.raises(CannotStart, match="recurrent state cannot become attention"):
        group_layers(model((STATE, 3), (FULL, 1)), hybrid_manager=False)


def test_two_window_sizes_cannot_be_promoted_together():
    longer = SlidingWindow(**SHAPE, sliding_window=4096)
    with pytest.raises(CannotStart, match=r"sliding_window \[128, 4096\]"):
        group_layers(model((WINDOW, 2), (longer, 2), (FULL, 1)), hybrid_manager=False)


def test_a_layer_outermost_layout_cannot_hold_mixed_pages_of_several_groups():
    rows = {"num_kv_heads": 1, "dtype": "uint8", "block_size": 64}
    mixed = {"a": MLA(**rows, head_size=576), "b": MLA(**rows, head_size=132)}
    assert len(group_layers(mixed, layout=Layout.LBNHC)) == 1
    with pytest.raises(CannotStart, match="VLLM_KV_CACHE_LAYOUT=BLHNC"):
        group_layers(mixed, layout=Layout.LHBNC)


def test_no_layers_give_no_groups():
    assert group_layers({}) == []


def test_the_divisor_with_least_padding_prefers_the_larger():
    assert least_padding_divisor([22, 21, 21, 20], 21) == 22
    assert least_padding_divisor([12, 24], 1) == 12
    assert least_padding_divisor([3], 5) == 5
