"""What a plan's reader must not overlook: an engine that will not start, a pool that context hardly fills, replicas."""

from collections.abc import Iterable

from decodebench.kv.replication import tp_replicas
from decodebench.planner.arguments import UNREAD
from decodebench.planner.settings import Settings
from decodebench.planner.shape import Shape


def warnings_about(shape: Shape, settings: Settings) -> tuple[str, ...]:
    return (
        *_start(shape),
        *_state_bound(shape, settings),
        *_pinned(shape),
        *_beyond(shape, settings),
        *_replicas(shape, settings),
    )


def about_unread(ignored: Iterable[str]) -> tuple[str, ...]:
    """Options of a pasted line that are not read and yet may change the answer."""
    return tuple(
        f"{name} is not read here and may change {UNREAD[name]}" for name in ignored if name in UNREAD
    )


def _start(shape: Shape) -> tuple[str, ...]:
    pool = shape.pool
    if not shape.memory.is_known or shape.starts:
        return ()
    longest = pool.longest_max_model_len()
    advice = f"lower --max-model-len to {longest:,}" if longest else "give it more memory or more GPUs"
    return (
        f"the engine does not start: one request of {pool.limits.max_model_len:,} tokens needs "
        f"{pool.blocks_per_max_request:,} blocks, the pool has {pool.num_blocks:,} with the null block; {advice}",
    )


def _state_bound(shape: Shape, settings: Settings) -> tuple[str, ...]:
    most, asked = shape.pool.max_num_seqs, settings.workload.max_num_seqs
    if not shape.memory.is_known or most is None or asked <= most:
        return ()
    return (
        f"with CUDA graphs the engine refuses --max-num-seqs {asked:,}: every sequence needs a state block; "
        f"at most {most:,}",
    )


def _pinned(shape: Shape) -> tuple[str, ...]:
    """The warning of the shortest asked request, which state and windows fill most."""
    if not shape.requests or not shape.memory.is_known:
        return ()
    warning = min(shape.requests, key=lambda cost: cost.context).warning
    return () if warning is None else (warning,)


def _beyond(shape: Shape, settings: Settings) -> tuple[str, ...]:
    limit = shape.pool.limits.max_model_len
    beyond = [length for length in settings.workload.context_lens if length > limit]
    if not beyond:
        return ()
    lengths = ", ".join(f"{length:,}" for length in beyond)
    return (f"context of {lengths} tokens is more than --max-model-len {limit:,}",)


def _replicas(shape: Shape, settings: Settings) -> tuple[str, ...]:
    ranks = settings.arguments.tensor_parallel_size
    context_ranks = settings.arguments.decode_context_parallel_size
    copies = tp_replicas(shape.pool.groups, ranks, context_ranks)
    if copies <= 1:
        return ()
    return (
        f"every {copies} tensor-parallel ranks hold the same KV, so their memory does not add up; "
        "--data-parallel-size gives each rank a pool of its own",
    )
