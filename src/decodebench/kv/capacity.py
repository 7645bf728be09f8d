"""Capacity in one import: the pool of blocks, what a request needs of it, and whether a batch fits.

>>> from decodebench.kv.grouping import group_layers
>>> from decodebench.kv.limits import EngineLimits
>>> from decodebench.kv.specs import FullAttention
>>> spec = FullAttention(block_size=16, num_kv_heads=8, head_size=128, dtype="bfloat16")
>>> groups = group_layers({f"layers.{i}": spec for i in range(32)})
>>> pool = plan_pool(groups, 40 << 30, EngineLimits(max_model_len=131072, max_num_batched_tokens=8192))
>>> pool.num_blocks, pool.logged_tokens
(20480, 327680)
>>> str(fit_batch(pool, batch=40, context=8192, output=64))
'needs 20,640 of 20,479 blocks'
"""

from decodebench.kv.fit import Fit, RequestCost, fit_batch, most_requests, request_cost
from decodebench.kv.need import decode_blocks, prefill_blocks
from decodebench.kv.pool import NULL_BLOCKS, Pool, bytes_per_block, plan_pool

__all__ = [
    "NULL_BLOCKS",
    "Fit",
    "Pool",
    "RequestCost",
    "bytes_per_block",
    "decode_blocks",
    "fit_batch",
    "most_requests",
    "plan_pool",
    "prefill_blocks",
    "request_cost",
]
