"""The pool of blocks that all groups draw from: its size in bytes, blocks and the tokens the engine logs.

A block id is owned by one group at a time and is as wide as the widest group. One block, the null block, is never given
to a request, and neither the log line nor the concurrency subtracts it: both are one block too kind.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py` (`get_kv_cache_config_from_groups`, `_get_kv_cache_bytes_per_block`,
`get_kv_cache_capacity`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from decodebench.kv.arithmetic import round_up
from decodebench.kv.errors import CannotStart
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits

NULL_BLOCKS = 1
"""`BlockPool` keeps one block back for positions without content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Blocks of one data-parallel rank, and the groups that share them."""

    groups: tuple[KVCacheGroup, ...]
    limits: EngineLimits
    bytes_per_block: int
    num_blocks: int

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold."""
        return self.num_blocks - NULL_BLOCKS

    @property
    def blocks_per_max_request(self) -> int:
        """Blocks that start-up sizing plans for one request of `max_model_len` tokens, all groups together."""
        return sum(group.max_blocks(self.limits) for group in self.groups)

    @property
    def concurrency(self) -> float:
        """vLLM's "maximum concurrency": requests of `max_model_len` tokens, the null block counted in."""
        return self.num_blocks / self.blocks_per_max_request

    @property
    def logged_tokens(self) -> int:
        """The "KV cache size" of the start-up line.

        Since 0.20.1 concurrency x max_model_len; before, blocks spread evenly over the groups x the smallest block.
        """
        if self.limits.rules.log_capacity_by_concurrency:
            return int(self.concurrency * self.limits.max_model_len)
        smallest = min(group.block_size for group in self.groups)
        return self.num_blocks // len(self.groups) * smallest * self.limits.decode_context_parallel_size

    @property
    def max_num_seqs(self) -> int | None:
        """The largest `--max-num-seqs` the engine starts with, None where the pool sets no bound.

        With state groups and full CUDA graphs every sequence needs a state block; `CompilationConfig` compares with
        all blocks, null block included (0.32 `config/compilation.py`).
        """
        has_state = any(spec.kind == "mamba" for group in self.groups for _, spec in group.layer_specs)
        return self.num_blocks if has_state and self.limits.rules.state_blocks_bound_seqs else None

    @property
    def holds_a_max_request(self) -> bool:
        """Whether the engine starts: a request of `max_model_len` tokens fits, since 0.29 beside the null block."""
        spare = NULL_BLOCKS if self.limits.rules.reserve_null_block else 0
        return self.blocks_per_max_request + spare <= self.num_blocks

    def longest_max_model_len(self) -> int:
        """The largest `--max-model-len` up to the configured one with which the engine starts; 0 if none."""
        low, high = 0, self.limits.max_model_len
        while low < high:
            length = (low + high + 1) // 2
            if replace(self, limits=replace(self.limits, max_model_len=length)).holds_a_max_request:
                low = length
            else:
                high = length - 1
        return low

    def log_lines(self) -> list[str]:
        """The start-up line or lines as this version writes them."""
        size = f"GPU KV cache size: {self.logged_tokens:,} tokens"
        length = f"{self.limits.max_model_len:,} tokens per request"
        concurrency = f"Maximum concurrency for {length}: {self.concurrency:.2f}x"
        return [f"{size}, {concurrency}"] if self.limits.rules.log_one_line else [size, concurrency]


def bytes_per_block(groups: Sequence[KVCacheGroup], layout: Layout) -> int:
    """Bytes of one block over all layers: those of the widest group, aligned as its backends ask."""
    if not layout.is_block_outermost:
        return max(sum(spec.block_stride for _, spec in group.layer_specs) for group in groups)
    alignment = lcm(*(spec.stride_alignment for group in groups for _, spec in group.layer_specs))
    return round_up(max(group.page_bytes for group in groups), alignment)


def plan_pool(
    groups: Sequence[KVCacheGroup],
    available_bytes: int | Sequence[int],
    limits: EngineLimits,
    *,
    layout: Layout = Layout.LBNHC,
    stages: Sequence[Sequence[str]] | None = None,
    num_gpu_blocks_override: int | None = None,
) -> Pool:
    """The pool of a rank with `available_bytes` for the KV cache.

    `stages`: layer names of each pipeline stage; then `available_bytes` may be one number a stage, and the stage with
    the fewest blocks bounds all. `bytes_per_block` is that stage's.
    """
    if not groups:
        raise ValueError("a model without KV cache layers has no pool")
    parts = (
        [list(groups)]
        if stages is None
        else [[group.on_stage(stage) for group in groups] for stage in stages]
    )
    budgets = [available_bytes] * len(parts) if isinstance(available_bytes, int) else list(available_bytes)
    if len(budgets) != len(parts):
        raise ValueError(f"available_bytes names {len(budgets)} budgets for {len(parts)} pipeline stages")
    widths = [bytes_per_block(part, layout) for part in parts]
    if 0 in widths:
        raise CannotStart(
            f"pipeline stage {widths.index(0)} has no layer with a KV cache, and the engine does not start with such a "
            "stage; lower --pipeline-parallel-size or set VLLM_PP_LAYER_PARTITION"
        )
    sizes = [
        _num_blocks(budget, width, num_gpu_blocks_override)
        for budget, width in zip(budgets, widths, strict=True)
    ]
    smallest = sizes.index(min(sizes))
    pool = Pool(
        groups=tuple(groups), limits=limits, bytes_per_block=widths[smallest], num_blocks=sizes[smallest]
    )
    pool.blocks_per_max_request  # noqa: B018 - refuses here what start-up sizing refuses
    return pool


def _num_blocks(budget: int, width: int, override: int | None) -> int:
    return budget // width if override is None else override
