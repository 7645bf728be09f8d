"""Grouping and capacity against vLLM's own functions, on random models.

`EXAMPLES` random models in the default run, thousands in the `matrix` run.
"""

import re
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm", minversion="0.32", reason="vLLM 0.32 or newer is not installed")

from vllm.v1.core import kv_cache_utils as engine

from decodebench.kv.capacity import plan_pool
from decodebench.kv.errors import CannotStart
from decodebench.kv.grouping import group_layers
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.layout import Layout
from decodebench.kv.specs import MambaState

from .spec_sets import engines, layouts, models, related_models
from .translate import engine_config, from_vllm, group_from_vllm, to_vllm

EXAMPLES = 300
MATRIX_EXAMPLES = 5000
MEMORY = st.integers(1 << 28, 80 << 30)


REFUSALS = (
    AssertionError,
    NotImplementedError,
    StopIteration,  # a packed split of more groups than the layer pattern has repeats
    TypeError,  # promotion of sliding-window MLA
    ValueError,
    ZeroDivisionError,  # kernel blocks smaller than one stored state
)


class Outcome(NamedTuple):
    """What the engine would build; None where it refuses to start."""

    groups: list[KVCacheGroup]
    num_blocks: int
    tokens: int
    concurrency: float


def engine_outcome(model, limits, layout, memory, hybrid_manager):
    modes = {spec.cache_mode for spec in model.values() if isinstance(spec, MambaState)}
    config = engine_config(
        limits, layout, hybrid_manager=hybrid_manager, cache_mode=modes.pop() if modes else "none"
    )
    try:
        groups = engine.get_kv_cache_groups(config, {name: to_vllm(spec) for name, spec in model.items()})
        planned = engine.get_kv_cache_config_from_groups(config, groups, memory)
        tokens, concurrency = engine.get_kv_cache_capacity(config, planned)
    except REFUSALS:
        return None
    return Outcome([group_from_vllm(group) for group in groups], planned.num_blocks, tokens, concurrency)


def our_outcome(model, limits, layout, memory, hybrid_manager):
    try:
        groups = group_layers(model, layout=layout, hybrid_manager=hybrid_manager, rules=limits.rules)
        pool = plan_pool(groups, memory, limits, layout=layout)
    except CannotStart:
        return None
    bare = [KVCacheGroup(group.layer_names, group.spec) for group in groups]
    return Outcome(bare, pool.num_blocks, pool.logged_tokens, pool.concurrency)


def check(model, limits, layout, memory, hybrid_manager):
    theirs = engine_outcome(model, limits, layout, memory, hybrid_manager)
    event("refused" if theirs is None else f"{len(theirs.groups)} groups")
    assert our_outcome(model, limits, layout, memory, hybrid_manager) == theirs


relaxed = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
any_engine = given(models, engines(), layouts, MEMORY, st.booleans())


@settings(max_examples=EXAMPLES, **relaxed)
@any_engine
def test_groups_blocks_tokens_and_concurrency_are_the_engines(model, limits, layout, memory, hybrid_manager):
    check(model, limits, layout, memory, hybrid_manager)


@pytest.mark.matrix
@settings(max_examples=MATRIX_EXAMPLES, **relaxed)
@any_engine
def test_the_same_over_thousands_of_models(model, limits, layout, memory, hybrid_manager):
    check(model, limits, layout, memory, hybrid_manager)


@settings(max_examples=EXAMPLES, **relaxed)
@given(models)
def test_pages_and_strides_of_every_spec_are_the_engines(model):
    for spec in model.values():
        theirs = to_vllm(spec)
        assert from_vllm(theirs) == spec
        assert (spec.page_bytes, spec.page_bytes_unpadded) == (
            theirs.page_size_bytes,
            theirs.real_page_size_bytes,
        )
        assert spec.stride_alignment == theirs.get_block_stride_alignment()
        assert spec.prefix_cacheable == theirs.prefix_cacheable


def split(model, stages):
    """Layer names of each of `stages` pipeline stages, in runs of about equal length."""
    names = list(model)
    size = -(-len(names) // stages)
    return [names[i : i + size] for i in range(0, len(names), size)]


@settings(max_examples=EXAMPLES // 2, **relaxed)
@given(related_models(), engines(), st.integers(1, 3), st.integers(1 << 22, 1 << 30))
def test_pipeline_stages_share_the_smallest_pool_or_do_not_start(model, limits, stages, memory):
    modes = {spec.cache_mode for spec in model.values() if isinstance(spec, MambaState)}
    config = engine_config(limits, Layout.LBNHC, cache_mode=modes.pop() if modes else "none")
    names = split(model, stages)
    try:
        pool = plan_pool(group_layers(model, rules=limits.rules), memory, limits, stages=names)
    except CannotStart:
        pool = None
    try:
        workers = [{name: to_vllm(model[name]) for name in stage} for stage in names]
        configs = engine.get_kv_cache_configs(config, workers, [memory] * len(names))
    except REFUSALS as refusal:
        assert pool is None or not pool.holds_a_max_request
        longest = re.search(r"estimated maximum model length is (\d+)", str(refusal))
        if longest and len(names) == 1:
            assert pool.longest_max_model_len() == int(longest.group(1))
        return
    assert pool.holds_a_max_request
    assert {one.num_blocks for one in configs} == {pool.num_blocks}
