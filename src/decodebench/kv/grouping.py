"""From per-layer specs to the KV cache groups the engine builds.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py get_kv_cache_groups`. In this order:

1. all layers can share one spec: one group;
2. all layers are of one type with different pages: one group that keeps a spec per layer;
3. a block-outermost layout with mixed pages: packed groups (`packing.py`);
4. else every group has as many layers as the others, padded where the counts do not divide, on one page size
   (`pages.py`).
"""

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.errors import CannotStart
from decodebench.kv.groups import KVCacheGroup, LayerSpecs, UniformTypeSpecs
from decodebench.kv.layout import Layout
from decodebench.kv.merging import merge
from decodebench.kv.packing import packed_groups
from decodebench.kv.pages import PageDoesNotFit, unify_page_sizes
from decodebench.kv.promotion import is_uniform, promote, promote_all
from decodebench.kv.rules import NEWEST, Rules
from decodebench.kv.specs import MLA, ChunkedLocal, LayerSpec, SlidingWindow, SlidingWindowMLA

UNEVEN = 1.5
"""Layer counts of all kinds within this factor: the most frequent kind sets the group size, else the rarest one.

vLLM 0.18 to 0.32 `_get_kv_cache_groups_uniform_page_size`.
"""


def group_layers(
    specs: LayerSpecs,
    *,
    layout: Layout = Layout.LBNHC,
    hybrid_manager: bool = True,
    rules: Rules = NEWEST,
) -> list[KVCacheGroup]:
    """Groups of a model whose layers have `specs`, in layer order; `CannotStart` where the engine refuses.

    `hybrid_manager=False` is `--disable-hybrid-kv-cache-manager`, or a connector that cannot have it on.
    """
    if not hybrid_manager:
        specs = promote_all(specs, rules)
    if not specs:
        return []
    groups = _group(specs, layout, rules)
    _check_layout(groups, layout, rules)
    return groups


def _group(specs: LayerSpecs, layout: Layout, rules: Rules) -> list[KVCacheGroup]:
    if is_uniform(specs):
        return [_merged_group(specs, list(specs))]
    if uniform := UniformTypeSpecs.of(specs):
        return [KVCacheGroup(tuple(specs), uniform)]
    mixed_pages = len({spec.page_bytes for spec in specs.values()}) > 1
    if mixed_pages and rules.packed_groups and layout.is_block_outermost:
        return packed_groups(specs, rules)
    if mixed_pages and not rules.packed_groups and _has_sliding_mla(specs):
        raise CannotStart(
            f"the groups of sliding-window MLA layers (DeepSeek-V4) are known here for vLLM 0.29 and newer, "
            f"not for {rules.version}"
        )
    try:
        unified = unify_page_sizes(specs, rules)
    except PageDoesNotFit:
        fallback = _full_allocation(specs, rules)
        if fallback is None:
            raise
        return [fallback]
    return _equal_page_groups(unified, rules)


def _equal_page_groups(specs: LayerSpecs, rules: Rules) -> list[KVCacheGroup]:
    """Groups of equally many layers. Layer i of a kind goes to group i modulo the kind's group count, which
    keeps every pipeline stage's share of each group alike.
    """
    buckets = _mergeable_buckets(specs, rules)
    counts = [len(names) for names in buckets]
    size = max(counts) if max(counts) < min(counts) * UNEVEN else min(counts)
    groups = []
    for names in buckets:
        split = ceil_div(len(names), size)
        groups += [_merged_group(specs, names[i::split], size) for i in range(split)]
    return groups


def _mergeable_buckets(specs: LayerSpecs, rules: Rules) -> list[list[str]]:
    """Layer names by spec; equal specs share a bucket, and (newer versions) specs that merge."""
    by_spec: dict[LayerSpec, list[str]] = {}
    for name, spec in specs.items():
        by_spec.setdefault(spec, []).append(name)
    if not rules.merge_compatible_specs:
        return list(by_spec.values())
    buckets: list[tuple[list[LayerSpec], list[str]]] = []
    for spec, names in by_spec.items():
        for members, bucket in buckets:
            if _merges([*members, spec]):
                members.append(spec)
                bucket += names
                break
        else:
            buckets.append(([spec], list(names)))
    return [names for _, names in buckets]


def _merges(specs: list[LayerSpec]) -> bool:
    try:
        return merge(specs) is not None
    except CannotStart:
        return False


def _merged_group(specs: LayerSpecs, names: list[str], size: int | None = None) -> KVCacheGroup:
    merged = merge([specs[name] for name in names])
    if merged is None:
        raise CannotStart(f"a {specs[names[0]].kind} layer cannot have both a window and chunks ({names[0]})")
    return KVCacheGroup(tuple(names), merged, padding_layers=0 if size is None else size - len(names))


def _full_allocation(specs: LayerSpecs, rules: Rules) -> KVCacheGroup | None:
    """MLA beside a plain sliding window (a draft model) whose pages do not unify: everything allocated in
    full.
    """
    layers = specs.values()
    if not rules.full_allocation_fallback or _has_sliding_mla(specs):
        return None
    if any(isinstance(spec, ChunkedLocal) for spec in layers):
        return None
    if not (any(isinstance(s, MLA) for s in layers) and any(isinstance(s, SlidingWindow) for s in layers)):
        return None
    try:
        uniform = UniformTypeSpecs.of(promote(specs, rules))
    except CannotStart:
        return None
    return KVCacheGroup(tuple(specs), uniform) if uniform else None


def _has_sliding_mla(specs: LayerSpecs) -> bool:
    return any(isinstance(spec, SlidingWindowMLA) for spec in specs.values())


def _check_layout(groups: list[KVCacheGroup], layout: Layout, rules: Rules) -> None:
    """Whether `layout` can hold these pages (0.32 `validate_kv_cache_layout`, `compute_layout_strides`)."""
    if not rules.packed_groups:
        return
    specs = [spec for group in groups for _, spec in group.layer_specs]
    pages = sorted({spec.page_bytes for spec in specs})
    beside = layout.is_page_contiguous and not (len(groups) > 1 and layout.is_layer_outermost)
    if len(pages) > 1 and not beside:
        raise CannotStart(
            f"vLLM {rules.version} cannot start: layout {layout.value} cannot hold pages of {pages} bytes side "
            "by side; a block-outermost one such as BLHNC can (VLLM_KV_CACHE_LAYOUT=BLHNC)"
        )
    padded = any(spec.page_bytes_padded is not None and spec.num_heads > 1 for spec in specs)
    spaced = not layout.is_block_outermost and any(spec.block_stride != spec.page_bytes for spec in specs)
    if not layout.is_page_contiguous and (padded or spaced):
        raise CannotStart(
            f"vLLM {rules.version} cannot start: layout {layout.value} interleaves heads and blocks, so it cannot "
            "pad pages; one with whole pages such as LBNHC can (VLLM_KV_CACHE_LAYOUT=LBNHC)"
        )
