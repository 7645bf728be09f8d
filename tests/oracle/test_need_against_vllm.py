"""Blocks of one request against vLLM's own `KVCacheManager`: a filled request decodes, and its blocks are counted."""

from math import gcd, lcm

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm", minversion="0.32", reason="vLLM 0.32 or newer is not installed")

from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils as engine
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from decodebench.kv.capacity import decode_blocks, plan_pool, prefill_blocks
from decodebench.kv.grouping import group_layers
from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits
from decodebench.kv.specs import (
    ALIGN,
    NONE,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    MambaState,
    SlidingWindow,
)

from .translate import engine_config, to_vllm

SHAPE = {"num_kv_heads": 1, "head_size": 64, "dtype": "bfloat16"}
MAX_MODEL_LEN = 1024
BLOCKS = 600  # more than any one request here needs
EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def hybrids(draw):
    """One layer of full attention, one local or none, one with state or none, in blocks of unequal size."""
    block = draw(st.sampled_from([4, 8, 16]))
    full = FullAttention(block_size=block, **SHAPE)
    local = {
        "block_size": draw(st.sampled_from([4, 8, 16])),
        **SHAPE,
        "page_bytes_padded": full.page_bytes * 16,
    }
    extra = draw(st.sampled_from([0, 0, 3]))
    window = SlidingWindow(sliding_window=draw(st.integers(1, 60)), extra_retained_tokens=extra, **local)
    chunked = ChunkedLocal(attention_chunk_size=draw(st.sampled_from([16, 32, 48])), **local)
    state = {
        "shapes": ((8,),),
        "dtypes": ("float32",),
        "page_bytes_padded": full.page_bytes,
        "num_speculative_blocks": draw(st.sampled_from([0, 0, 2])),
    }
    aligned = MambaState(block_size=block, cache_mode=ALIGN, **state)
    plain = MambaState(block_size=MAX_MODEL_LEN, cache_mode=NONE, **state)
    ring = CircularBuffer(block_size=block, **SHAPE)
    layers = [
        full,
        draw(st.sampled_from([window, chunked])),
        draw(st.sampled_from([aligned, plain, ring, full])),
    ]
    return {f"layers.{i}": spec for i, spec in enumerate(layers)}


@st.composite
def limits(draw):
    asynchronous = draw(st.booleans())
    return EngineLimits(
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=draw(st.sampled_from([64, 2048])),
        async_scheduling=asynchronous,
    )


def manager_of(model, bounds):
    modes = {spec.cache_mode for spec in model.values() if isinstance(spec, MambaState)}
    config = engine_config(bounds, Layout.BLHNC, cache_mode=modes.pop() if modes else NONE)
    config.cache_config.num_gpu_blocks_override = BLOCKS
    groups = engine.get_kv_cache_groups(config, {name: to_vllm(spec) for name, spec in model.items()})
    planned = engine.get_kv_cache_config_from_groups(config, groups, 1 << 30)
    sizes = [group.kv_cache_spec.block_size for group in groups]
    return KVCacheManager(
        engine.generate_scheduler_kv_cache_config([planned]),
        max_model_len=bounds.max_model_len,
        scheduler_block_size=lcm(*sizes),
        hash_block_size=gcd(*sizes),
        enable_caching=False,
        max_in_flight_tokens=bounds.max_in_flight_tokens,
    )


def held(manager, request):
    """Blocks that are not the null block, by group."""
    tables = [single.req_to_blocks[request.request_id] for single in manager.coordinator.single_type_managers]
    return [sum(not block.is_null for block in table) for table in tables]


def decode(manager, context, output, unsettled, lookahead):
    """Most blocks by group over a filled request's decode steps. Every step computes one token."""
    request = Request("r", list(range(context)), SamplingParams(max_tokens=output + 1), None)
    if context > 1:
        assert manager.allocate_slots(
            request, 0, num_external_computed_tokens=context - 1, delay_cache_blocks=True
        )
    request.num_computed_tokens = context - 1
    peaks = held(manager, request)
    for step in range(output + 1):
        request.num_in_flight_tokens = min(step, unsettled) * (1 + lookahead)
        assert manager.allocate_slots(request, 1, num_lookahead_tokens=lookahead)
        request.append_output_token_ids(0)
        request.num_computed_tokens += 1
        peaks = [max(pair) for pair in zip(peaks, held(manager, request), strict=True)]
    return peaks


@EXAMPLES
@given(hybrids(), limits(), st.integers(1, 300), st.integers(0, 150), st.sampled_from([0, 0, 0, 3]))
def test_decode_blocks_are_the_most_a_filled_request_holds(model, bounds, context, output, lookahead):
    groups = group_layers(model, layout=Layout.BLHNC, rules=bounds.rules)
    ours = decode_blocks(groups, context, bounds, output=output, lookahead=lookahead)
    peaks = decode(manager_of(model, bounds), context, output, bounds.unsettled_steps, lookahead)
    assert list(ours) == peaks


@EXAMPLES
@given(hybrids(), limits(), st.integers(1, MAX_MODEL_LEN))
def test_prefill_blocks_are_what_admission_asks_for(model, bounds, tokens):
    manager = manager_of(model, bounds)
    request = Request("r", list(range(tokens)), SamplingParams(max_tokens=1), None)
    groups = group_layers(model, layout=Layout.BLHNC, rules=bounds.rules)
    ours = prefill_blocks(groups, tokens, bounds)
    singles = manager.coordinator.single_type_managers
    for group, single, blocks in zip(groups, singles, ours, strict=True):
        asked = single.get_num_blocks_to_allocate(
            request.request_id, tokens, [], 0, 0, tokens, apply_admission_cap=True
        )
        if group.representative.kind == "mamba":  # planned for the state copied between blocks as well
            assert blocks >= asked
        else:
            assert blocks == asked


@EXAMPLES
@given(hybrids(), limits())
def test_a_request_of_full_length_needs_what_start_up_plans(model, bounds):
    groups = group_layers(model, layout=Layout.BLHNC, rules=bounds.rules)
    pool = plan_pool(groups, 1 << 30, bounds, layout=Layout.BLHNC)
    assert sum(prefill_blocks(groups, bounds.max_model_len, bounds)) <= pool.blocks_per_max_request
