"""What a built-in model is: a tiny model of a real family, made on the spot, with what its server needs to be told.

A recipe keeps what decides the shape of the KV cache (kinds of layers, their mix, windows, states, packed layouts) and
shrinks everything else until the model decodes on two CPU cores. The weights are random at the family's own scale, so
that activations, expert routing and greedy tokens are as varied as a trained model's; the answers mean nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodebench.engine.distribution import is_cpu_build
from decodebench.engine.recipes import cache, tokenizer

VOCABULARY: Mapping[str, int] = {
    "vocab_size": 4096,
    "pad_token_id": tokenizer.PAD,
    "bos_token_id": tokenizer.BOS,
    "eos_token_id": tokenizer.EOS,
}
"""What every recipe's configuration says of its tokens."""


@dataclass(frozen=True, slots=True)
class Group:
    """One KV cache group that vLLM is expected to form."""

    kind: str
    """As vLLM calls it (0.32 `v1/kv_cache_interface.py KVCacheSpecKind`)."""
    layers: int = 1


@dataclass(frozen=True, slots=True)
class Fits:
    """The largest point the recipe's KV space holds with room to decode: `batch_size` requests of `context_len`."""

    batch_size: int
    context_len: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A built-in model. `vllm_args` follow the model directory on the command line of `vllm serve`."""

    name: str
    summary: str
    groups: tuple[Group, ...]
    config: Mapping[str, Any]
    """The Hugging Face configuration, `model_type` included; `config.json` is written from it."""
    dtype: str
    max_model_len: int
    fits: Fits
    block_size: int = 128
    """Tokens of a block where the engine is free to choose; it rounds up for states and fixes some kinds itself."""
    kv_cache_memory: str = "1G"
    max_num_seqs: int = 64
    common_env: Mapping[str, str] = field(default_factory=dict)
    """Environment that its server needs on any device."""
    cpu_env: Mapping[str, str] = field(default_factory=dict)
    """Environment that its server needs on the CPU build besides."""
    shims: tuple[str, ...] = ()
    """Names of the CPU shims (`engine/cpu_shims`) without which it does not decode on the CPU build."""
    finish: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Turns the tensors transformers wrote, by name, into those that vLLM's loader reads, where the two differ."""
    seed: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of KV cache in it, each once, in the order of the groups."""
        return tuple(dict.fromkeys(group.kind for group in self.groups))

    @property
    def env(self) -> dict[str, str]:
        """Environment that its server needs on the build of vLLM that is installed."""
        return {**self.common_env, **(self.cpu_env if is_cpu_build() else {})}

    @property
    def vllm_args(self) -> tuple[str, ...]:
        return (
            *("--served-model-name", self.name),
            *("--dtype", self.dtype),
            *("--max-model-len", str(self.max_model_len)),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *("--block-size", str(self.block_size)),
            *("--kv-cache-memory-bytes", self.kv_cache_memory),
            "--enforce-eager",
        )

    def materialise(self) -> Path:
        """The model directory, made now if the cache does not hold it intact.

        Making it takes about ten seconds, in a process of its own (it needs torch and transformers, which this one
        stays free of). Raises `RecipeError` if that fails.
        """
        return cache.obtain(self)

    @property
    def is_cached(self) -> bool:
        return cache.find(self) is not None
