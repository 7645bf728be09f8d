"""What the engine builds with the hybrid manager on, or off: groups, pool, the cost of a request, which points fit."""

from collections.abc import Sequence
from dataclasses import dataclass

from decodebench.kv.capacity import Fit, Pool, RequestCost, plan_pool, request_cost
from decodebench.kv.grouping import group_layers
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits, too_many_requests
from decodebench.kv.zeroing import zeroed_groups
from decodebench.models import ModelSpecs


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one GPU has for the KV cache: bytes, or a number of blocks that replaces them. Neither: not said."""

    available_bytes: int | None = None
    num_blocks: int | None = None

    @property
    def is_known(self) -> bool:
        return self.available_bytes is not None or self.num_blocks is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The points to answer for. `output_len` tokens are decoded from each context on, `lookahead` is the drafter's."""

    batch_sizes: tuple[int, ...] = ()
    context_lens: tuple[int, ...] = ()
    output_len: int = 0
    lookahead: int = 0
    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One KV cache group. Sizes are bytes; `unused_bytes` of every block it holds carry nothing."""

    kind: str
    layers: int
    layer_names: tuple[str, ...]
    block_size: int
    page_bytes: int  # of one layer; the largest where they differ
    block_bytes: int  # pages of all its layers
    padding_layers: int
    unused_bytes: int
    zeroed: bool  # the engine zeroes its new blocks
    max_request_blocks: int  # what start-up sizing plans for one request of max_model_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One (batch size, context length) point. `reason` says why it does not fit, or what it needs."""

    batch_size: int
    context_len: int
    needed_blocks: int
    usable_blocks: int
    fits: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The KV cache of one engine (one data-parallel rank). Without a known memory the pool has no blocks to tell."""

    groups: tuple[Group, ...]
    pool: Pool
    memory: Memory
    requests: tuple[RequestCost, ...]
    points: tuple[Point, ...]

    @property
    def starts(self) -> bool:
        """Whether the engine starts: one request of `max_model_len` fits."""
        return self.pool.holds_a_max_request


def build_shape(
    specs: ModelSpecs, limits: EngineLimits, memory: Memory, work: Workload, *, hybrid_manager: bool
) -> Shape:
    """The cache of `specs`; `CannotStart` where this version cannot build it."""
    layout = Layout(specs.layout)
    groups = group_layers(specs.layers, layout=layout, hybrid_manager=hybrid_manager, rules=limits.rules)
    stages = [list(stage) for stage in specs.stages] if len(specs.stages) > 1 else None
    pool = plan_pool(
        groups,
        memory.available_bytes or 0,
        limits,
        layout=layout,
        stages=stages,
        num_gpu_blocks_override=memory.num_blocks,
    )
    costs = [
        request_cost(pool, length, output=work.output_len, lookahead=work.lookahead)
        for length in work.context_lens
    ]
    points = [_point(pool, batch, cost, work) for batch in work.batch_sizes for cost in costs]
    return Shape(
        groups=_groups(groups, pool, whole=stages is None),
        pool=pool,
        memory=memory,
        requests=tuple(cost for cost in costs if cost.context <= limits.max_model_len),
        points=tuple(points) if memory.is_known else (),
    )


def point_on(shape: Shape, work: Workload, batch_size: int, context_len: int) -> Point:
    """A further point of a shape that is built. Without a known memory only `needed_blocks` means anything."""
    cost = request_cost(shape.pool, context_len, output=work.output_len, lookahead=work.lookahead)
    return _point(shape.pool, batch_size, cost, work)


def _groups(groups: Sequence[KVCacheGroup], pool: Pool, *, whole: bool) -> tuple[Group, ...]:
    """`whole`: one pipeline stage holds all layers, so that a block's width can be compared with a group's pages."""
    zeroed = zeroed_groups(groups)
    found = []
    for group, is_zeroed in zip(groups, zeroed, strict=True):
        page_bytes = max(spec.page_bytes for _, spec in group.layer_specs)
        padding = group.padding_layers * page_bytes
        found.append(
            Group(
                kind=group.kind,
                layers=len(group.layer_names),
                layer_names=group.layer_names,
                block_size=group.block_size,
                page_bytes=page_bytes,
                block_bytes=group.page_bytes,
                padding_layers=group.padding_layers,
                unused_bytes=max(pool.bytes_per_block - group.page_bytes, 0) if whole else padding,
                zeroed=is_zeroed,
                max_request_blocks=group.max_blocks(pool.limits),
            )
        )
    return tuple(found)


def _point(pool: Pool, batch: int, cost: RequestCost, work: Workload) -> Point:
    fit = Fit(batch * sum(cost.blocks), pool.usable_blocks)
    refusal = _refusal(pool, batch, cost.context, work)
    return Point(
        batch_size=batch,
        context_len=cost.context,
        needed_blocks=fit.needed,
        usable_blocks=fit.usable,
        fits=fit.fits and not refusal,
        reason=refusal or str(fit),
    )


def _refusal(pool: Pool, batch: int, context: int, work: Workload) -> str:
    """Why a point is out of the question whatever memory there is."""
    last = context + work.output_len
    if last > pool.limits.max_model_len:
        return f"{last:,} tokens are more than --max-model-len {pool.limits.max_model_len:,}"
    if batch > work.max_num_seqs:
        return too_many_requests(batch, work.max_num_seqs)
    tokens = batch * (1 + work.lookahead)
    if tokens > work.max_num_batched_tokens:
        return f"a step of {tokens:,} tokens is more than --max-num-batched-tokens {work.max_num_batched_tokens:,}"
    return ""
