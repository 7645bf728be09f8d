"""The engine settings that decide how many blocks one request may hold."""

from dataclasses import dataclass, field

from decodebench.kv.rules import NEWEST, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Scheduler budget and parallelism of one engine; field names are vLLM's flags.

    `async_scheduling` and `use_v2_model_runner` are on by default on GPUs where supported; the CPU platform
    turns both off (vLLM 0.32 `platforms/cpu.py check_and_update_config`).
    """

    max_model_len: int
    max_num_batched_tokens: int
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    async_scheduling: bool = True
    use_v2_model_runner: bool = True
    rules: Rules = field(default=NEWEST, repr=False)

    def __post_init__(self) -> None:
        for name in (
            "max_model_len",
            "max_num_batched_tokens",
            "pipeline_parallel_size",
            "decode_context_parallel_size",
        ):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")

    @property
    def max_concurrent_batches(self) -> int:
        """Batches scheduled before the first one's tokens are settled (vLLM 0.32
        `VllmConfig.max_concurrent_batches`).
        """
        if self.async_scheduling:
            if self.use_v2_model_runner:
                return self.pipeline_parallel_size + 1
            if self.pipeline_parallel_size == 1:
                return 2
        return self.pipeline_parallel_size

    @property
    def unsettled_steps(self) -> int:
        """Earlier steps of one request whose tokens are not settled when its next step is scheduled, at most.

        Without asynchronous scheduling a request waits for its own token.
        """
        return self.max_concurrent_batches - 1 if self.async_scheduling else 0

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens scheduled and not yet settled, for which recycling caches keep blocks beyond their window.

        0.32: `VllmConfig.max_in_flight_tokens`. Earlier versions reserved one batch (see `rules.py`).
        """
        batches = self.max_concurrent_batches if self.rules.reserve_concurrent_batches else 1
        return batches * self.max_num_batched_tokens


def too_many_requests(batch: int, max_num_seqs: int) -> str:
    """How a batch that is larger than the engine's step is refused, on paper and by the engine."""
    return f"{batch} requests, but --max-num-seqs is {max_num_seqs}: raise it after `--`"
