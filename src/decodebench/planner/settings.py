"""What the engine makes of flags, device and version before it builds a cache: lengths, step limits, memory, points."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodebench.errors import UserError
from decodebench.kv.limits import EngineLimits
from decodebench.kv.rules import rules_for
from decodebench.kv.units import parse_bytes, parse_count, parse_counts
from decodebench.models import EngineFlags, ModelConfig, ModelSpecs, describe
from decodebench.planner.arguments import EngineArguments, is_count_or_none
from decodebench.planner.attention import read_attention
from decodebench.planner.device import StepLimits, Target, default_step_limits
from decodebench.planner.offloading import SIMPLE, offloading_config
from decodebench.planner.shape import Memory, Workload
from decodebench.planner.speculation import Speculation, read_speculation

ALLOW_CHUNKED = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"
ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
LAYER_PARTITION = "VLLM_PP_LAYER_PARTITION"

CPU_WITHOUT_AMX = "cpu"
CPU_MLA_STEP = 2048
"""MLA on a CPU without AMX is never prefilled in chunks: whatever was asked, a step takes `max_model_len` tokens, but
no fewer than these (vLLM 0.32 `platforms/cpu.py check_and_update_config`).
"""

MIB = 2**20

Counts = Sequence[int | str] | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants to know, as given: memory of one GPU, points, decoded tokens."""

    available_kv_memory: int | str | None
    batch_size: Counts
    context_len: Counts
    output_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is settled before the caches are built. `assumed` is what nobody said."""

    target: Target
    arguments: EngineArguments
    env: Mapping[str, str]
    speculation: Speculation
    specs: ModelSpecs
    limits: EngineLimits
    memory: Memory
    workload: Workload
    assumed: tuple[str, ...]

    @property
    def transfer_config(self) -> Mapping[str, Any] | str | None:
        """The one in force: `--kv-offloading-size` puts a connector of its own in."""
        given = self.arguments.kv_transfer_config
        if self.arguments.kv_offloading_size is None:
            return given
        if given is not None:
            raise UserError(
                "--kv-offloading-size replaces what --kv-transfer-config names", "leave one of them out"
            )
        backend, simple = self.arguments.kv_offloading_backend, is_set(self.env, SIMPLE)
        return offloading_config(backend, self.target.version_number, simple=simple)

    @property
    def allows_chunked(self) -> bool:
        return is_set(self.env, ALLOW_CHUNKED)


def settle(
    config: ModelConfig, arguments: EngineArguments, env: Mapping[str, str], target: Target, asked: Asked
) -> Settings:
    """Settle all of it; `UserError`, `ModelError` or `ValueError` where something given makes no sense."""
    if not isinstance(asked.output_len, int) or asked.output_len < 0:
        raise UserError(f"--output-len {asked.output_len!r}: must be an integer of at least 0")
    speculation = read_speculation(arguments.speculative_config)
    specs = describe(config, _flags(arguments, target, speculation, env))
    steps = _step_limits(arguments, target, specs)
    limits = _engine_limits(arguments, target, speculation, specs, steps)
    contexts = _counts(asked.context_len, "--context-len") or (specs.max_model_len,)
    workload = Workload(
        batch_sizes=_counts(asked.batch_size, "--batch-size"),
        context_lens=contexts,
        output_len=asked.output_len,
        lookahead=speculation.num_tokens,
        max_num_seqs=steps.max_num_seqs,
        max_num_batched_tokens=steps.max_num_batched_tokens,
    )
    return Settings(
        target=target,
        arguments=arguments,
        env=env,
        speculation=speculation,
        specs=specs,
        limits=limits,
        memory=_memory(asked.available_kv_memory, arguments),
        workload=workload,
        assumed=(*target.assumed, *_assumed_steps(arguments, target, steps), *specs.assumed),
    )


def is_set(env: Mapping[str, str], name: str) -> bool:
    """Whether a switch of vLLM's environment is on; it reads them as integers (`envs.py`)."""
    return env.get(name, "0").strip().lower() in ("1", "true")


def _flags(
    arguments: EngineArguments, target: Target, speculation: Speculation, env: Mapping[str, str]
) -> EngineFlags:
    partition = env.get(LAYER_PARTITION)
    attention = read_attention(arguments.attention_config)
    return EngineFlags(
        gpu=target.gpu,
        vllm_version=target.version_number,
        tensor_parallel_size=arguments.tensor_parallel_size,
        pipeline_parallel_size=arguments.pipeline_parallel_size,
        data_parallel_size=arguments.data_parallel_size,
        pp_layer_partition=parse_counts(partition, LAYER_PARTITION) if partition else None,
        dtype=arguments.dtype,
        kv_cache_dtype=arguments.kv_cache_dtype,
        block_size=arguments.block_size,
        max_model_len=arguments.max_model_len,
        allow_long_max_model_len=is_set(env, ALLOW_LONG),
        enable_prefix_caching=arguments.enable_prefix_caching is not False,
        mamba_block_size=arguments.mamba_block_size,
        mamba_cache_mode=arguments.mamba_cache_mode,
        mamba_cache_dtype=arguments.mamba_cache_dtype,
        mamba_ssm_cache_dtype=arguments.mamba_ssm_cache_dtype,
        num_speculative_tokens=speculation.num_tokens,
        draft_layers=speculation.draft_layers,
        attention_backend=attention.backend or arguments.attention_backend,
        indexer_kv_dtype=attention.indexer_kv_dtype,
        gdn_prefill_backend=arguments.gdn_prefill_backend,
        disable_sliding_window=bool(arguments.disable_sliding_window),
    )


def _step_limits(arguments: EngineArguments, target: Target, specs: ModelSpecs) -> StepLimits:
    """The flags, else vLLM's defaults as `_set_default_max_num_seqs_and_batched_tokens_args` caps them (0.32)."""
    default = default_step_limits(target, _world_size(arguments))
    seqs = arguments.max_num_seqs or default.max_num_seqs
    tokens = arguments.max_num_batched_tokens or min(
        default.max_num_batched_tokens, seqs * specs.max_model_len
    )
    if arguments.enable_chunked_prefill is False and arguments.max_num_batched_tokens is None:
        tokens = max(specs.max_model_len, tokens)
    if specs.uses_mla and target.gpu.name == CPU_WITHOUT_AMX:
        tokens = max(specs.max_model_len, CPU_MLA_STEP)
    limits = StepLimits(tokens, arguments.max_num_seqs or min(seqs, tokens))
    _check_steps(limits, specs.max_model_len, chunked=arguments.enable_chunked_prefill is not False)
    return limits


def _check_steps(limits: StepLimits, max_model_len: int, *, chunked: bool) -> None:
    """What the engine refuses (0.32 `SchedulerConfig.verify_max_model_len`)."""
    if limits.max_num_batched_tokens < limits.max_num_seqs:
        raise UserError(
            f"--max-num-batched-tokens {limits.max_num_batched_tokens} is less than --max-num-seqs "
            f"{limits.max_num_seqs}, and the engine refuses that: every sequence needs a token of the step",
            "raise the first or lower the second",
        )
    if not chunked and limits.max_num_batched_tokens < max_model_len:
        raise UserError(
            f"--max-num-batched-tokens {limits.max_num_batched_tokens} is less than --max-model-len {max_model_len}, "
            "and without chunked prefill the engine refuses that",
            "raise the first, lower the second or leave out --no-enable-chunked-prefill",
        )


def _world_size(arguments: EngineArguments) -> int:
    return arguments.tensor_parallel_size * arguments.pipeline_parallel_size


def _assumed_steps(arguments: EngineArguments, target: Target, steps: StepLimits) -> tuple[str, ...]:
    assumed = []
    if arguments.max_num_batched_tokens is None:
        tokens = steps.max_num_batched_tokens
        assumed.append(f"--max-num-batched-tokens {tokens}: the default of `vllm serve` on {target.gpu.name}")
    if arguments.max_num_seqs is None:
        assumed.append(
            f"--max-num-seqs {steps.max_num_seqs}: the default of `vllm serve` on {target.gpu.name}"
        )
    return tuple(assumed)


def _engine_limits(
    arguments: EngineArguments, target: Target, speculation: Speculation, specs: ModelSpecs, steps: StepLimits
) -> EngineLimits:
    on_gpu = target.gpu.is_cuda  # the CPU platform schedules synchronously and has the V1 runner only
    asynchronous = (
        speculation.asynchronous if arguments.async_scheduling is None else arguments.async_scheduling
    )
    return EngineLimits(
        max_model_len=specs.max_model_len,
        max_num_batched_tokens=steps.max_num_batched_tokens,
        pipeline_parallel_size=arguments.pipeline_parallel_size,
        decode_context_parallel_size=arguments.decode_context_parallel_size,
        async_scheduling=on_gpu and asynchronous,
        use_v2_model_runner=on_gpu,
        rules=rules_for(target.version),
    )


def _memory(given: int | str | None, arguments: EngineArguments) -> Memory:
    available = _available(given) if isinstance(given, str) else given
    if available is None:
        available = arguments.kv_cache_memory_bytes
    if not is_count_or_none(available):
        raise UserError(
            f"--available-kv-memory {given}: must be at least 1 byte", "write it as 64.68GiB or in bytes"
        )
    return Memory(available_bytes=available, num_blocks=arguments.num_gpu_blocks_override)


def _available(text: str) -> int:
    """What a user wrote; a small number without a unit is a unit forgotten."""
    available = parse_bytes(text, "--available-kv-memory")
    if 0 < available < MIB and text.strip().isdecimal():
        raise UserError(f"--available-kv-memory {text}: {available} bytes?", f"write {text.strip()}GiB")
    return available


def _counts(given: Counts, field: str) -> tuple[int, ...]:
    """Counts from one number, a list of them, or text such as `8k,128k`."""
    if isinstance(given, str):
        return parse_counts(given, field)
    values = tuple(given) if isinstance(given, Iterable) else (given,)
    counts = tuple(parse_count(value, field) if isinstance(value, str) else value for value in values)
    for count in counts:
        if count is None or not is_count_or_none(count):
            raise UserError(f"{field} {count!r}: every value must be an integer of at least 1")
    return counts
