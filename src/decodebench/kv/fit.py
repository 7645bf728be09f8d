"""Whether a batch of decoding requests fits, and what one request costs.

All requests of a batch must hold their blocks at once, so a point fits if

    batch x blocks(context + output + lookahead) + watermark <= usable blocks

where usable blocks leave out the null block and blocks() is the sum over groups (`need.py`).
"""

from dataclasses import dataclass

from decodebench.kv.need import decode_blocks
from decodebench.kv.pool import Pool
from decodebench.kv.specs import ALL, FullAttention, LayerSpec, MambaState


@dataclass(frozen=True, slots=True)
class Fit:
    """Blocks a batch needs, and blocks the pool has for requests."""

    needed: int
    usable: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable

    def __str__(self) -> str:
        return f"needs {self.needed:,} of {self.usable:,} blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """What one decoding request of `context` tokens occupies.

    `fixed_bytes` do not depend on the context once windows are full (state, windows, buffers); `bytes_per_token` is
    what one more token costs in the long run.
    """

    context: int
    blocks: tuple[int, ...]  # by group
    bytes: int
    fixed_bytes: int
    bytes_per_token: float
    max_requests: int

    @property
    def fixed_share(self) -> float:
        """Share of the request's bytes that a shorter context would not free."""
        return self.fixed_bytes / self.bytes

    @property
    def warning(self) -> str | None:
        """What to say where tokens are not what fills the pool."""
        if self.fixed_share <= 0.5:
            return None
        return (
            f"{self.fixed_share:.0%} of what a request of {self.context:,} tokens occupies does not depend on its "
            f"length (state, windows): the pool ends at {self.max_requests:,} such requests, not at a number of tokens"
        )


def fit_batch(
    pool: Pool, batch: int, context: int, *, output: int = 0, lookahead: int = 0, watermark: float = 0.0
) -> Fit:
    """Whether `batch` requests can decode from `context` to `context + output` tokens without a preemption.

    `watermark` is the engine's fraction of blocks kept free at admission (0.32 `SchedulerConfig.watermark`).
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}; it must be at least 1")
    each = sum(decode_blocks(pool.groups, context, pool.limits, output=output, lookahead=lookahead))
    return Fit(batch * each + int(watermark * pool.num_blocks), pool.usable_blocks)


def most_requests(
    pool: Pool, context: int, *, output: int = 0, lookahead: int = 0, watermark: float = 0.0
) -> int:
    """The largest batch that fits at `context`."""
    blocks = decode_blocks(pool.groups, context, pool.limits, output=output, lookahead=lookahead)
    return _most_of(pool, sum(blocks), watermark)


def request_cost(pool: Pool, context: int, *, output: int = 0, lookahead: int = 0) -> RequestCost:
    """Blocks and bytes of one decoding request. A block costs its full width, whichever group holds it."""
    blocks = decode_blocks(pool.groups, context, pool.limits, output=output, lookahead=lookahead)
    growing = [_grows(group.representative) for group in pool.groups]
    fixed = sum(count for count, grows in zip(blocks, growing, strict=True) if not grows)
    per_token = sum(
        pool.bytes_per_block / (group.block_size * _shards(pool, group.representative))
        for group, grows in zip(pool.groups, growing, strict=True)
        if grows
    )
    return RequestCost(
        context=context,
        blocks=blocks,
        bytes=sum(blocks) * pool.bytes_per_block,
        fixed_bytes=fixed * pool.bytes_per_block,
        bytes_per_token=per_token,
        max_requests=_most_of(pool, sum(blocks)),
    )


def _most_of(pool: Pool, each: int, watermark: float = 0.0) -> int:
    return max((pool.usable_blocks - int(watermark * pool.num_blocks)) // each, 0)


def _grows(spec: LayerSpec) -> bool:
    return isinstance(spec, FullAttention) or (isinstance(spec, MambaState) and spec.cache_mode == ALL)


def _shards(pool: Pool, spec: LayerSpec) -> int:
    return pool.limits.decode_context_parallel_size if spec.dcp_sharded else 1
