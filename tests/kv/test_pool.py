"""The pool, what fits in it, and what the engine says about it."""

from dataclasses import replace

import pytest

from decodebench.kv.capacity import decode_blocks, fit_batch, most_requests, plan_pool, request_cost
from decodebench.kv.errors import CannotStart
from decodebench.kv.grouping import group_layers
from decodebench.kv.limits import EngineLimits
from decodebench.kv.replication import tp_replicas
from decodebench.kv.rules import rules_for
from decodebench.kv.specs import MLA, FullAttention, MambaState, SlidingWindow
from decodebench.kv.zeroing import needs_zeroing, zeroed_groups

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LIMITS = EngineLimits(max_model_len=8192, max_num_batched_tokens=2048)
# 1 KiB a token and layer.
FULL = FullAttention(block_size=16, num_kv_heads=2, head_size=128, dtype="bfloat16")
WINDOW = SlidingWindow(block_size=16, num_kv_heads=2, head_size=128, dtype="bfloat16", sliding_window=1024)


def state(page_bytes, **more):
    return MambaState(block_size=page_bytes // KIB, shapes=((page_bytes // 4,),), dtypes=("float32",), **more)


def pool_of(specs, memory=GIB, limits=LIMITS, **more):
    return plan_pool(group_layers(specs, rules=limits.rules), memory, limits, **more)


def test_a_pool_of_exactly_the_blocks_a_request_needs_is_one_too_small():
    specs = {"a": FULL}
    exact = pool_of(specs, memory=512 * 16 * KIB)
    assert (exact.num_blocks, exact.blocks_per_max_request) == (512, 512)
    assert not fit_batch(exact, 1, 8192).fits
    assert str(fit_batch(exact, 1, 8192)) == "needs 512 of 511 blocks"
    assert not exact.holds_a_max_request
    assert fit_batch(replace(exact, num_blocks=513), 1, 8192).fits


def test_the_longest_model_len_is_the_last_with_which_the_engine_starts():
    small = pool_of({"a": FULL, "b": WINDOW}, memory=300 * 16 * KIB)
    length = small.longest_max_model_len()
    for tokens, starts in ((length, True), (length + 1, False)):
        tried = replace(small, limits=replace(small.limits, max_model_len=tokens))
        assert tried.holds_a_max_request == starts


def test_fixed_and_marginal_bytes_do_not_depend_on_max_model_len():
    specs = {f"state.{i}": state(100 * MIB) for i in range(1)} | {"full": replace(FULL, block_size=100 * KIB)}
    costs = [
        request_cost(pool_of(specs, 10 * GIB, replace(LIMITS, max_model_len=length)), 4096)
        for length in (8192, 131072)
    ]
    assert {cost.fixed_bytes for cost in costs} == {100 * MIB}
    assert {cost.bytes_per_token for cost in costs} == {KIB}
    assert {cost.max_requests for cost in costs} == {101 // 2}


def test_short_requests_on_large_state_pages_get_a_warning():
    specs = {f"state.{i}": state(8 * MIB) for i in range(3)} | {"full": replace(FULL, block_size=8 * KIB)}
    pool = pool_of(specs, 10 * GIB)
    assert len(pool.groups) == 4
    cost = request_cost(pool, 12)
    assert cost.blocks == (1, 1, 1, 1)
    assert cost.fixed_share == 0.75
    assert "75%" in cost.warning
    assert request_cost(pool_of({"full": FULL}), 12).warning is None


def test_state_groups_bound_max_num_seqs_by_the_blocks():
    specs = {"state": state(MIB), "full": replace(FULL, block_size=KIB)}
    assert pool_of(specs, num_gpu_blocks_override=161).max_num_seqs == 161
    assert pool_of({"full": FULL}).max_num_seqs is None


def test_a_decoding_window_holds_the_window_not_the_context():
    (window,) = group_layers({"a": WINDOW})
    short, long = (decode_blocks([window], context, LIMITS, output=64) for context in (1500, 8000))
    assert short == long
    assert long[0] * 16 < 1024 + 4 * 16


def test_growth_inside_a_block_is_free_and_one_token_more_is_not():
    groups = group_layers({"a": FULL})
    assert decode_blocks(groups, 1600, LIMITS) == (100,)
    assert decode_blocks(groups, 1590, LIMITS, output=10) == (100,)
    assert decode_blocks(groups, 1590, LIMITS, output=10, lookahead=1) == (101,)


def test_aligned_state_holds_two_blocks_only_where_a_boundary_is_crossed():
    groups = group_layers({"a": state(MIB, cache_mode="align")})
    assert decode_blocks(groups, 500, LIMITS, output=100) == (1,)
    assert decode_blocks(groups, 1000, LIMITS, output=100) == (2,)


def test_most_requests_is_the_largest_batch_that_fits():
    pool = pool_of({"a": FULL, "b": WINDOW}, memory=GIB // 16)
    most = most_requests(pool, 2000, output=100, watermark=0.05)
    assert fit_batch(pool, most, 2000, output=100, watermark=0.05).fits
    assert not fit_batch(pool, most + 1, 2000, output=100, watermark=0.05).fits


@pytest.mark.parametrize(
    ("batch", "context", "output"), [(0, 10, 0), (1, 0, 0), (1, 10, -1)], ids=["batch", "context", "output"]
)
def test_a_point_that_describes_no_request_is_refused(batch, context, output):
    with pytest.raises(ValueError, match=r"accepted|at least 1"):
        fit_batch(pool_of({"a": FULL}), batch, context, output=output)


def test_the_smallest_pipeline_stage_bounds_the_pool():
    specs = {f"layers.{i}": FULL for i in range(10)}
    names = list(specs)
    even = pool_of(specs, stages=[names[:5], names[5:]])
    uneven = pool_of(specs, stages=[names[:3], names[3:]])
    assert even.num_blocks == GIB // (5 * 16 * KIB)
    assert uneven.num_blocks == GIB // (7 * 16 * KIB)


def test_concurrency_counts_in_flight_batches_since_0_26():
    limits = EngineLimits(max_model_len=65536, max_num_batched_tokens=8192)
    old, new = (replace(limits, rules=rules_for(version)) for version in ("0.25", "0.26"))
    assert WINDOW.max_blocks(old) == (1023 + 8192 + 15) // 16 + 1
    assert WINDOW.max_blocks(new) == (1023 + 2 * 8192 + 15) // 16 + 1


def test_the_log_line_is_that_of_the_version():
    specs = {f"w{i}": WINDOW for i in range(2)} | {"f": FULL}
    new, middle, old = (
        pool_of(specs, limits=replace(LIMITS, rules=rules_for(v))) for v in ("0.32", "0.24", "0.19")
    )
    assert new.log_lines() == [
        f"GPU KV cache size: {new.logged_tokens:,} tokens, Maximum concurrency for 8,192 tokens per request: "
        f"{new.concurrency:.2f}x"
    ]
    assert middle.log_lines()[0] == f"GPU KV cache size: {middle.logged_tokens:,} tokens"
    assert old.logged_tokens == old.num_blocks // 3 * 16


def test_one_latent_head_is_replicated_over_tensor_parallel_ranks():
    groups = group_layers(
        {"a": MLA(block_size=64, num_kv_heads=1, head_size=576, dtype="uint8", max_tp_shards=1)}
    )
    assert [tp_replicas(groups, tp) for tp in (1, 2, 8)] == [1, 2, 8]
    assert tp_replicas(group_layers({"a": replace(FULL, max_tp_shards=8)}), 8) == 1


def test_state_or_mixed_precision_makes_the_engine_zero_attention_blocks():
    half = replace(FULL, dtype="uint8", num_kv_heads=4)
    assert not needs_zeroing(group_layers({"a": FULL, "b": WINDOW}))
    assert needs_zeroing(group_layers({"a": FULL, "b": half}))
    groups = group_layers({"s": state(MIB), "f": replace(FULL, block_size=KIB)})
    assert dict(zip((g.kind for g in groups), zeroed_groups(groups), strict=True)) == {
        "mamba": False,
        "full_attention": True,
    }


def test_padding_below_the_content_is_refused():
    with pytest.raises(CannotStart, match="page_bytes_padded is 100"):
        _ = replace(FULL, page_bytes_padded=100).page_bytes


def test_an_unknown_version_is_refused_and_a_newer_one_is_marked():
    with pytest.raises(ValueError, match=r"known from 0\.18"):
        rules_for("0.9.2")
    with pytest.raises(ValueError, match="accepted"):
        rules_for("newest")
    assert rules_for("0.34.1").assumed
    assert not rules_for("0.33.0.dev3+g4ba787e").assumed


def test_a_stage_without_a_cache_is_one_the_engine_does_not_start_with():
    specs = {f"layers.{i}": FULL for i in range(4)}
    with pytest.raises(CannotStart, match="pipeline stage 1 has no layer with a KV cache"):
        pool_of(specs, stages=[list(specs), []])
