"""vLLM's real scheduler, driven without a model.

The model's part is played by `step`: every scheduled request that has computed its last known token gets one new token,
and the workers answer the connector's orders as real ones would (`Workers`), some steps later where a test wants it.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from math import lcm
from pathlib import Path

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from decodebench.connector.layout import GroupLayers
from decodebench.connector.ledger import owed_pages
from decodebench.connector.metadata import DecodeBenchConnectorMetadata, JobReport, KeepReport, WorkerReport

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 1000,
    "max_position_embeddings": 1 << 17,
    "torch_dtype": "bfloat16",
}

FULL = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
SLIDING = SlidingWindowSpec(
    block_size=16, num_kv_heads=2, head_size=32, dtype=torch.bfloat16, sliding_window=64
)


def state_spec(mode="none", block_size=4096, spec_blocks=0):
    return MambaSpec(
        block_size=block_size,
        shapes=((4, 8), (16,)),
        dtypes=(torch.float32, torch.bfloat16),
        mamba_cache_mode=mode,
        num_speculative_blocks=spec_blocks,
    )


@dataclass
class Workers:
    """The connector's worker side: reports every fill and donor copy `delay` steps later, and honours releases.

    `count` workers are one output here: each names a copied request as sent, which the engine's aggregator makes one.
    """

    count: int = 1
    delay: int = 0
    spoil: tuple[int, ...] | None = None  # pages to report instead of the true ones
    error: str | None = None
    keep_error: str | None = None
    layers: GroupLayers | None = None  # told with every report, where a test has it
    due: deque = field(default_factory=deque)  # (step at which to report, reports)
    keeping: deque = field(default_factory=deque)  # (step at which to report, copies)
    released: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    held: dict[int, tuple[list[int], ...]] = field(default_factory=dict)  # the bank: donor -> its blocks
    fills: dict = field(default_factory=dict)  # request -> its last fill

    def answer(self, meta: DecodeBenchConnectorMetadata) -> KVConnectorOutput:
        if meta.fills:
            pages = self.spoil or owed_pages(meta.fills.values())
            reports = tuple(JobReport(meta.step, rank, pages, self.error) for rank in range(self.count))
            self.due.append((meta.step + self.delay, reports))
        jobs = ()
        while self.due and self.due[0][0] <= meta.step:
            jobs += self.due.popleft()[1]
        for donor in meta.drops:
            assert self.held.pop(donor, None) is not None or self.keep_error
        if meta.copies:
            self.keeping.append((meta.step + self.delay, meta.copies))
        copied = ()
        while self.keeping and self.keeping[0][0] <= meta.step:
            copied += self.keeping.popleft()[1]
        self.held |= {copy.donor: copy.blocks for copy in copied if self.keep_error is None}
        self.fills |= meta.fills
        for fill in meta.fills.values():
            assert {donor for sources in fill.sources for donor in sources.donors} <= self.held.keys()
        kept = tuple(
            KeepReport(copy.donor, rank, tuple(map(len, copy.blocks)), self.keep_error)
            for copy in copied
            for rank in range(self.count)
        )
        sent = {copy.request_id for copy in copied}
        self.sent += sent
        self.released += meta.release
        return KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving=set(meta.release) or None,
            kv_connector_worker_meta=WorkerReport(meta.step, jobs, kept, self.layers),
        )


class Engine:
    """A scheduler with our connector, a KV cache of `groups`, and `in_flight` batches outstanding."""

    def __init__(
        self,
        model_dir: Path,
        groups=(FULL,),
        num_blocks=1000,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        max_model_len=4096,
        in_flight=1,
        extra=None,
        prefix_caching=False,
        workers=None,
        transfer=None,
        tensor_parallel_size=1,
        kv_role="kv_both",
        watermark=0.0,
    ):
        model_dir.mkdir(exist_ok=True, parents=True)
        (model_dir / "config.json").write_text(json.dumps(CONFIG))
        transfer = transfer or {
            "kv_connector": "DecodeBenchConnector",
            "kv_connector_module_path": "decodebench.connector",
            "kv_role": kv_role,
            "kv_connector_extra_config": extra or {},
        }
        self.vllm_config = VllmConfig(
            model_config=ModelConfig(
                model=str(model_dir),
                skip_tokenizer_init=True,
                dtype="bfloat16",
                max_model_len=max_model_len,
                enforce_eager=True,
            ),
            cache_config=CacheConfig(block_size=16, enable_prefix_caching=prefix_caching),
            scheduler_config=SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                is_encoder_decoder=False,
                async_scheduling=False,
                watermark=watermark,
            ),
            parallel_config=ParallelConfig(tensor_parallel_size=tensor_parallel_size),
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=KVTransferConfig(**transfer),
        )
        if in_flight > 1:
            # The CPU platform turns asynchronous scheduling off for its own runner; the scheduler itself does not care.
            self.vllm_config.scheduler_config.async_scheduling = True
        self.vllm_config.cache_config.num_gpu_blocks = num_blocks
        states = [spec for spec in groups if isinstance(spec, MambaSpec)]
        if states:
            self.vllm_config.cache_config.mamba_cache_mode = states[0].mamba_cache_mode
        register_all_kvcache_specs(self.vllm_config)
        self.kv_cache_config = KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(groups)],
            hash_block_size=16,
        )
        block_size = lcm(*(spec.block_size for spec in groups))
        scheduler_class = AsyncScheduler if in_flight > 1 else Scheduler
        self.scheduler = scheduler_class(
            vllm_config=self.vllm_config,
            kv_cache_config=self.kv_cache_config,
            log_stats=True,
            block_size=block_size,
            hash_block_size=16,
            structured_output_manager=StructuredOutputManager(self.vllm_config),
        )
        self.connector = self.scheduler.connector
        self.workers = workers or Workers(count=self.vllm_config.parallel_config.world_size)
        self.in_flight = in_flight
        self.queue: deque = deque()
        self.outputs: dict[str, list[int]] = {}
        self.responses: dict[str, dict] = {}
        self.batches: list[dict[str, int]] = []  # scheduled tokens of every step
        self._made = 0
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(16, sha256)

    def add(self, prompt_len=100, max_tokens=10, decodebench=None, params="build", prompt=None, **sampling):
        """A request arrives; returns its id. `params` overrides the whole `kv_transfer_params` field."""
        self._made += 1
        salt = sampling.pop("cache_salt", f"salt{self._made}")
        adapter = sampling.pop("adapter", None)
        if params == "build":
            params = None if decodebench is None else {"decodebench": decodebench}
        request = Request(
            request_id=f"r{self._made}",
            prompt_token_ids=prompt or [(self._made * 7919 + i) % 1000 for i in range(prompt_len)],
            sampling_params=SamplingParams(
                max_tokens=max_tokens, ignore_eos=True, extra_args={"kv_transfer_params": params}, **sampling
            ),
            pooling_params=None,
            cache_salt=salt,
            block_hasher=self._hasher,
            lora_request=LoRARequest(adapter, 1, "nowhere") if adapter else None,
        )
        self.scheduler.add_request(request)
        return request.request_id

    def cohort(self, name="c", size=4, timeout_s=600, count=None, asked=None, **request):
        member = {"cohort": {"id": name, "size": size, "timeout_s": timeout_s}} | (asked or {})
        return [self.add(decodebench=member, **request) for _ in range(count or size)]

    def step(self) -> dict[str, int]:
        """One schedule, and one update once `in_flight` batches are outstanding; returns what was scheduled."""
        if not self.scheduler.has_requests():
            self.update()
            return {}
        output = self.scheduler.schedule()
        self.batches.append(dict(output.num_scheduled_tokens))
        self.queue.append((output, self._run(output)))
        if len(self.queue) >= self.in_flight or not output.num_scheduled_tokens:
            self.update()
        return self.batches[-1]

    def update(self) -> None:
        if not self.queue:
            return
        output, result = self.queue.popleft()
        for outputs in self.scheduler.update_from_output(output, result).values():
            for item in outputs.outputs:
                self.outputs.setdefault(item.request_id, []).extend(item.new_token_ids)
                if item.finish_reason is not None:
                    self.responses[item.request_id] = item.kv_transfer_params

    def run(self, steps=500, until=None) -> None:
        """Step until nothing is left (or `until()`), at most `steps` times."""
        for _ in range(steps):
            if until() if until else not (self.scheduler.has_requests() or self.queue):
                return
            self.step()
        raise AssertionError(f"still running after {steps} steps")

    def abort(self, request_id) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def answer(self, request_id) -> dict:
        """What the response of a finished request carries under our key."""
        return (self.responses[request_id] or {}).get("decodebench", {})

    def _run(self, output) -> ModelRunnerOutput:
        req_ids = list(output.num_scheduled_tokens)
        sampled = []
        for req_id in req_ids:
            request = self.scheduler.requests[req_id]
            # `num_computed_tokens` was advanced by schedule(): a prompt chunk that is not the last samples nothing.
            sampled.append([1] if request.num_computed_tokens >= request.num_tokens else [])
        return ModelRunnerOutput(
            req_ids=req_ids,
            req_id_to_index={req_id: i for i, req_id in enumerate(req_ids)},
            sampled_token_ids=sampled,
            kv_connector_output=self.workers.answer(output.kv_connector_metadata),
        )
