"""What fits (rule 5.5, cases P5 and P6)."""

from dataclasses import replace
from types import SimpleNamespace

from decodebench.connector.limits import Limits, unsupported
from decodebench.kv.blocks import GroupShape

LIMITS = Limits(
    shapes=(GroupShape("full_attention", 16), GroupShape("state", 4096)),
    num_blocks=101,
    watermark_blocks=0,
    max_num_seqs=64,
    max_num_batched_tokens=64,
    max_model_len=4096,
)


def test_the_null_block_is_not_for_requests():
    ends = [9 * 16] * 10  # 9 + 1 blocks each
    assert LIMITS.misfit(ends) is None
    assert replace(LIMITS, num_blocks=100).misfit(ends) == "needs 100 of 99 blocks"


def test_the_watermark_is_kept_free():
    assert replace(LIMITS, watermark_blocks=1).misfit([9 * 16] * 10) == "needs 100 of 99 blocks"


def test_drafts_count_for_the_tokens_of_a_step():
    assert (
        replace(LIMITS, num_drafts=1).misfit([16] * 33)
        == "66 tokens a step, but max_num_batched_tokens is 64"
    )


def test_lookahead_slots_count_as_tokens_but_never_beyond_the_model():
    assert replace(LIMITS, lookahead=1).blocks_needed([16]) == 3
    assert replace(LIMITS, lookahead=8, max_model_len=16).blocks_needed([16]) == 2


def test_batches_in_flight_widen_a_window():
    shapes = (GroupShape("sliding_window", 16, window=64),)
    assert replace(LIMITS, shapes=shapes).blocks_needed([1000]) == 5
    assert replace(LIMITS, shapes=shapes, batches_in_flight=3).blocks_needed([1000]) == 6


def test_a_window_holds_what_it_reads_whatever_the_context():
    window = replace(LIMITS, shapes=(GroupShape("sliding_window", 16, window=64),), max_model_len=200_000)
    assert [window.blocks_needed([tokens]) for tokens in (10, 64, 1000, 100_000)] == [1, 4, 5, 5]


def test_a_state_that_moves_through_its_table_holds_two():
    def needed(shape: GroupShape) -> int:
        return replace(LIMITS, shapes=(shape,)).blocks_needed([4000])

    assert needed(GroupShape("state", 4096)) == 1
    assert needed(GroupShape("state", 64)) == 2
    assert needed(GroupShape("state", 64, scratch_blocks=3)) == 5


def test_drafts_need_slots_even_where_the_scheduler_looks_no_further_ahead():
    assert replace(LIMITS, num_drafts=4).blocks_needed([16]) == 3


def test_parallelism_that_cannot_be_exact_is_refused_by_name():
    plain = {"pipeline_parallel_size": 1, "decode_context_parallel_size": 1}
    assert unsupported(SimpleNamespace(**plain)) is None
    assert "pipeline" in unsupported(SimpleNamespace(**(plain | {"pipeline_parallel_size": 2})))
    assert "context" in unsupported(SimpleNamespace(**(plain | {"decode_context_parallel_size": 2})))
