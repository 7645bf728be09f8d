"""Groups of mixed page sizes, packed side by side into one block (block-outermost layouts: DeepSeek-V4).

Source: vLLM 0.32 `v1/core/kv_cache_utils.py _get_packed_kv_cache_groups`. Layers fall into buckets of one
type. A bucket with equally many layers of each of several page sizes is a repeating pattern and stays whole;
buckets of one page size are split towards the same number of repeats, so that all groups fill a block about
equally. State buckets are split further, so that they never widen the block.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from decodebench.kv.arithmetic import ceil_div
from decodebench.kv.errors import CannotStart
from decodebench.kv.groups import KVCacheGroup, LayerSpecs, UniformTypeSpecs, is_one_type
from decodebench.kv.rules import Rules
from decodebench.kv.specs import CircularBuffer, LayerSpec, MambaState, SlidingWindow


@dataclass(frozen=True, slots=True)
class Bucket:
    """All layers of one type, and their names by page size."""

    specs: UniformTypeSpecs
    by_page: dict[int, list[str]]

    @property
    def is_balanced(self) -> bool:
        """Equally many layers of each page size: one repeating pattern."""
        return len({len(names) for names in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        return self.specs.most_layers_of_one_page_size

    def widest_split_bytes(self, groups: int) -> int:
        """Page bytes of the largest of `groups` groups it is split into."""
        return sum(ceil_div(len(names), groups) * page for page, names in self.by_page.items())


def packed_groups(specs: LayerSpecs, rules: Rules) -> list[KVCacheGroup]:
    """Groups for a layout that packs pages of several sizes into one block."""
    buckets = [_bucket(part) for part in _by_type(specs)]
    repeats = _repeats_per_group(buckets)
    splits = [_pattern_splits(bucket, repeats) for bucket in buckets]
    state = [_splits_like_state(bucket.specs.first, repeats, rules) for bucket in buckets]
    anchor = max(
        bucket.widest_split_bytes(len(bucket.specs.layers) if is_state else split)
        for bucket, split, is_state in zip(buckets, splits, state, strict=True)
    )
    groups: list[KVCacheGroup] = []
    for bucket, split, is_state in zip(buckets, splits, state, strict=True):
        if is_state:
            states_per_block = max(anchor // bucket.specs.first.page_bytes, 1)
            split = max(split, ceil_div(len(bucket.specs.layers), states_per_block))
        groups += _split(bucket, split)
    return groups


def _by_type(specs: LayerSpecs) -> list[dict[str, LayerSpec]]:
    """Layers in first-fit buckets of one type, in the model's order."""
    parts: list[tuple[LayerSpec, dict[str, LayerSpec]]] = []
    for name, spec in specs.items():
        for first, part in parts:
            if is_one_type(first, spec):
                part[name] = spec
                break
        else:
            parts.append((spec, {name: spec}))
    return [part for _, part in parts]


def _bucket(part: LayerSpecs) -> Bucket:
    specs = UniformTypeSpecs.of(part)
    assert specs is not None, "a bucket is built of one type"
    by_page: defaultdict[int, list[str]] = defaultdict(list)
    for name, spec in part.items():
        by_page[spec.page_bytes].append(name)
    return Bucket(specs, dict(by_page))


def _repeats_per_group(buckets: Sequence[Bucket]) -> int | None:
    """Pattern repeats a group should hold; None where no bucket mixes page sizes in a pattern."""
    balanced = [bucket for bucket in buckets if bucket.is_balanced]
    least = max((bucket.repeats for bucket in balanced if len(bucket.by_page) > 1), default=0)
    return least_padding_divisor([bucket.repeats for bucket in balanced], least) if least else None


def least_padding_divisor(values: Sequence[int], least: int) -> int:
    """The d >= `least` for which rounding `values` up to multiples of d adds least; the largest such d.

    vLLM's `_approximate_gcd`.
    """
    if least > max(values):
        return least
    return min(range(least, max(values) + 1), key=lambda d: (sum(-value % d for value in values), -d))


def _pattern_splits(bucket: Bucket, repeats: int | None) -> int:
    return ceil_div(bucket.repeats, repeats) if bucket.is_balanced and repeats is not None else 1


def _splits_like_state(spec: LayerSpec, repeats: int | None, rules: Rules) -> bool:
    if isinstance(spec, MambaState):
        return True
    if not rules.split_windows_like_state:
        return False
    return isinstance(spec, CircularBuffer) or (repeats is None and isinstance(spec, SlidingWindow))


def _split(bucket: Bucket, groups: int) -> list[KVCacheGroup]:
    if groups == 1:
        return [KVCacheGroup(tuple(name for name, _ in bucket.specs.layers), bucket.specs)]
    repeats = list(zip(*bucket.by_page.values(), strict=False))
    chosen = [[name for repeat in repeats[i::groups] for name in repeat] for i in range(groups)]
    if not all(chosen):
        raise CannotStart(
            f"vLLM cannot start: {len(bucket.specs.layers)} {bucket.specs.first.kind} layers of mixed page sizes "
            f"would be split into {groups} groups, more than they have repeats of the pattern ({len(repeats)})"
        )
    specs = dict(bucket.specs.layers)
    return [
        KVCacheGroup(tuple(names), UniformTypeSpecs(tuple((name, specs[name]) for name in names)))
        for names in chosen
    ]
