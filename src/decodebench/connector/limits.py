"""What one engine can hold and run at once, and whether a cohort of given lengths can decode as one batch in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decodebench.kv.blocks import GroupShape
from decodebench.kv.limits import EngineLimits, too_many_requests
from decodebench.kv.need import decode_blocks
from decodebench.kv.running import groups_of_shapes


@dataclass(frozen=True, slots=True)
class Limits:
    """Facts of one scheduler (one DP rank). Block 0 of the pool is the null block and never held by a request."""

    shapes: tuple[GroupShape, ...]
    num_blocks: int
    watermark_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_drafts: int = 0
    lookahead: int = 0  # token slots beyond the output that speculative decoding keeps
    batches_in_flight: int = 1

    @property
    def usable_blocks(self) -> int:
        return self.num_blocks - 1 - self.watermark_blocks

    def blocks_needed(self, ends: Sequence[int]) -> int:
        """Blocks that requests of `ends` tokens (prompt and whole output) hold when all decode to their end."""
        groups = groups_of_shapes(self.shapes, self.max_model_len)
        ahead = max(self.lookahead, self.num_drafts)
        each = {
            end: sum(decode_blocks(groups, 1, self._scheduler, output=end - 1, lookahead=ahead))
            for end in set(ends)
        }
        return sum(each[end] for end in ends)

    @property
    def _scheduler(self) -> EngineLimits:
        """The same scheduler, as `kv` describes one: a batch in flight beyond the first is a step not yet settled."""
        return EngineLimits(
            max_model_len=self.max_model_len,
            max_num_batched_tokens=self.max_num_batched_tokens,
            pipeline_parallel_size=max(self.batches_in_flight - 1, 1),
            async_scheduling=self.batches_in_flight > 1,
        )

    def misfit(self, ends: Sequence[int]) -> str | None:
        """Why `ends` can never decode as one batch, or None."""
        batch = len(ends)
        if batch > self.max_num_seqs:
            return too_many_requests(batch, self.max_num_seqs)
        tokens = batch * (1 + self.num_drafts)
        if tokens > self.max_num_batched_tokens:
            return f"{tokens} tokens a step, but max_num_batched_tokens is {self.max_num_batched_tokens}"
        needed = self.blocks_needed(ends)
        if needed > self.usable_blocks:
            return f"needs {needed} of {self.usable_blocks} blocks"
        return None


def unsupported(parallel: Any) -> str | None:
    """Why an engine with this vLLM parallel config cannot be measured exactly, or None."""
    if parallel.pipeline_parallel_size > 1:
        return (
            "pipeline parallelism is not supported: one cohort is one micro-batch and the other slots would idle, so "
            "its step times are not those of a full pipeline; use --tensor-parallel-size or --data-parallel-size"
        )
    if parallel.decode_context_parallel_size > 1:
        return (
            "decode context parallelism is not supported: it spreads a block's tokens over ranks; "
            "leave out --decode-context-parallel-size"
        )
    return None
