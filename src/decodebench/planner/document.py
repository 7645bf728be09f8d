"""A plan as JSON, schema `decodebench.plan/1` (docs/schema/plan-1.json, which a test holds real plans against).

The top level describes the engine with the hybrid manager on; `hma_off` the same with it off; `hma.in_force` says
which of the two it will be.
"""

from typing import Any

from decodebench.kv.capacity import RequestCost
from decodebench.planner.cost import Cost, cost_of_off
from decodebench.planner.plan import Plan
from decodebench.planner.shape import Group, Point, Shape

SCHEMA = "decodebench.plan/1"


def document(plan: Plan) -> dict[str, Any]:
    settings = plan.settings
    return {
        "schema": SCHEMA,
        "model": {
            "name": plan.model,
            "family": settings.specs.family,
            "architecture": settings.specs.architecture,
        },
        "engine": _engine(plan),
        "hma": _hma(plan),
        **_shape_or_error(plan.on, plan.on_error),
        "hma_off": _shape_or_error(plan.off, plan.off_error),
        "warnings": list(plan.warnings),
        "assumed": list(plan.assumed),
        "ignored": list(plan.ignored),
    }


def _engine(plan: Plan) -> dict[str, Any]:
    settings = plan.settings
    specs, limits, arguments = settings.specs, settings.limits, settings.arguments
    return {
        "vllm_version": settings.target.version,
        "gpu": settings.target.gpu.name,
        "kv_cache_dtype": specs.kv_cache_dtype,
        "kv_cache_layout": specs.layout,
        "block_size": specs.block_size,
        "max_model_len": specs.max_model_len,
        "max_num_seqs": settings.workload.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_concurrent_batches": limits.max_concurrent_batches,
        "tensor_parallel_size": arguments.tensor_parallel_size,
        "pipeline_parallel_size": arguments.pipeline_parallel_size,
        "data_parallel_size": arguments.data_parallel_size,
        "decode_context_parallel_size": arguments.decode_context_parallel_size,
        "available_kv_memory_bytes": settings.memory.available_bytes,
    }


def _hma(plan: Plan) -> dict[str, Any]:
    decision = plan.hma
    in_force = {"on": "on", "off": "off"}.get(decision.verdict.value)
    return {
        "verdict": decision.verdict.value,
        "reason": decision.reason,
        "path": decision.path,
        "flag": decision.flag,
        "serve_flags": list(decision.serve_flags),
        "in_force": in_force,
        "cost": _cost(cost_of_off(plan)),
    }


def _cost(cost: Cost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "tokens_on": cost.tokens_on,
        "tokens_off": cost.tokens_off,
        "requests": [
            {
                "context_len": row.context_len,
                "bytes_on": row.bytes_on,
                "bytes_off": row.bytes_off,
                "max_requests_on": row.max_requests_on,
                "max_requests_off": row.max_requests_off,
            }
            for row in cost.requests
        ],
    }


def _shape_or_error(shape: Shape | None, error: str) -> dict[str, Any]:
    if shape is None:
        return {"error": error}
    pool, known = shape.pool, shape.memory.is_known
    return {
        "groups": [_group(group) for group in shape.groups],
        "pool": {
            "bytes_per_block": pool.bytes_per_block,
            "blocks": pool.num_blocks if known else None,
            "usable_blocks": max(pool.usable_blocks, 0) if known else None,
            "max_request_blocks": pool.blocks_per_max_request,
            "starts": shape.starts if known else None,
        },
        "requests": [_request(cost, known) for cost in shape.requests],
        "points": [_point(point) for point in shape.points],
        "log_line": {
            "tokens": pool.logged_tokens if known else None,
            "concurrency": round(pool.concurrency, 2) if known else None,
            "lines": pool.log_lines() if known else [],
        },
        "max_num_seqs": pool.max_num_seqs if known else None,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "layers": group.layers,
        "block_size": group.block_size,
        "page_bytes": group.page_bytes,
        "padding_layers": group.padding_layers,
        "block_bytes": group.block_bytes,
        "unused_bytes": group.unused_bytes,
        "zeroed": group.zeroed,
        "max_request_blocks": group.max_request_blocks,
        "layer_names": list(group.layer_names),
    }


def _request(cost: RequestCost, known: bool) -> dict[str, Any]:
    return {
        "context_len": cost.context,
        "blocks": sum(cost.blocks),
        "blocks_by_group": list(cost.blocks),
        "bytes": cost.bytes,
        "fixed_bytes": cost.fixed_bytes,
        "bytes_per_token": cost.bytes_per_token,
        "max_requests": cost.max_requests if known else None,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "batch_size": point.batch_size,
        "context_len": point.context_len,
        "fits": point.fits,
        "needed_blocks": point.needed_blocks,
        "usable_blocks": max(point.usable_blocks, 0),
        "reason": point.reason,
    }
