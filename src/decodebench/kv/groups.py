"""KV cache groups: layers that share one block table, and so one block id per position."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from decodebench.kv.limits import EngineLimits
from decodebench.kv.specs import LayerSpec

LayerSpecs = Mapping[str, LayerSpec]


def is_one_type(first: LayerSpec, other: LayerSpec) -> bool:
    """Whether `other` may stand in one wrapper with `first`: the same token slots in blocks of the same size."""
    slots = (first.block_size, first.dcp_sharded) == (other.block_size, other.dcp_sharded)
    return slots and first.same_type_as(other)


@dataclass(frozen=True, slots=True)
class UniformTypeSpecs:
    """Layers of one type (same token slots, same block size) whose pages differ: one spec per layer is kept.

    vLLM 0.32 `v1/kv_cache_interface.py UniformTypeKVCacheSpecs`.
    """

    layers: tuple[tuple[str, LayerSpec], ...]

    @classmethod
    def of(cls, specs: LayerSpecs) -> Self | None:
        """The wrapper around `specs`, or None if they are not of one type. Not symmetric: the first spec
        decides.
        """
        layers = tuple(specs.items())
        first = layers[0][1]
        return cls(layers) if all(is_one_type(first, spec) for _, spec in layers) else None

    @property
    def first(self) -> LayerSpec:
        return self.layers[0][1]

    @property
    def block_size(self) -> int:
        return self.first.block_size

    @property
    def page_bytes(self) -> int:
        return sum(spec.page_bytes for _, spec in self.layers)

    @property
    def most_layers_of_one_page_size(self) -> int:
        """In a balanced bucket: how often the layer pattern repeats."""
        return max(Counter(spec.page_bytes for _, spec in self.layers).values())

    def max_blocks(self, limits: EngineLimits) -> int:
        return max(spec.max_blocks(limits) for _, spec in self.layers)

    def only(self, layer_names: Iterable[str]) -> Self:
        wanted = set(layer_names)
        return type(self)(tuple((name, spec) for name, spec in self.layers if name in wanted))


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """One group. `spec` is the merged spec of all its layers, or one spec a layer.

    `padding_layers`: layers' worth of bytes that its blocks leave unused because all groups of an equal-page
    pool are as wide as the widest.
    """

    layer_names: tuple[str, ...]
    spec: LayerSpec | UniformTypeSpecs
    padding_layers: int = 0

    @property
    def representative(self) -> LayerSpec:
        """The spec by which the scheduler manages the group's blocks (`generate_scheduler_kv_cache_config`)."""
        return self.spec.first if isinstance(self.spec, UniformTypeSpecs) else self.spec

    @property
    def kind(self) -> str:
        """vLLM's kind name; layers of several full-attention kinds in one group are `full_attention`."""
        kinds = {spec.kind for _, spec in self.layer_specs}
        return kinds.pop() if len(kinds) == 1 else "full_attention"

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.spec.block_size

    @property
    def layer_specs(self) -> tuple[tuple[str, LayerSpec], ...]:
        if isinstance(self.spec, UniformTypeSpecs):
            return self.spec.layers
        return tuple((name, self.spec) for name in self.layer_names)

    @property
    def distinct_specs(self) -> tuple[LayerSpec, ...]:
        """The specs of its layers, equal ones once."""
        return tuple(dict.fromkeys(spec for _, spec in self.layer_specs))

    @property
    def page_bytes(self) -> int:
        """Bytes of all layers' pages in one block of this group."""
        return sum(spec.page_bytes for _, spec in self.layer_specs)

    def max_blocks(self, limits: EngineLimits) -> int:
        """Blocks that start-up sizing plans for one request of `max_model_len` tokens."""
        return self.spec.max_blocks(limits)

    def on_stage(self, layer_names: Iterable[str]) -> "KVCacheGroup":
        """The part of this group that a pipeline stage with `layer_names` holds; it may hold none of it."""
        stage = set(layer_names)
        here = tuple(name for name in self.layer_names if name in stage)
        spec = self.spec
        if here and isinstance(spec, UniformTypeSpecs):
            spec = spec.only(here)
        return KVCacheGroup(here, spec)
