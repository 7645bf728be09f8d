"""What speculative decoding adds to the cache: the layers of the model's own drafter, and slots allocated ahead."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decodebench.errors import UserError

OWN_LAYERS = ("mtp", "deepseek_mtp", "qwen3_next_mtp", "qwen3_5_mtp", "glm4_moe_mtp", "mimo_mtp")
"""Methods that draft with multi-token-prediction layers of the model itself; vLLM calls them all `mtp` inside."""

NO_LAYERS = ("ngram", "ngram_gpu", "suffix")
"""Methods that draft without a model."""

USE_EAGLE = ("eagle", "eagle3", "mtp", "dflash", "dspark")
"""Drafters that read the target's hidden states (vLLM 0.32 `SpeculativeConfig.use_eagle`)."""

SYNCHRONOUS = ("ngram", "suffix", "medusa", "mlp_speculator", "custom_class")
"""Methods with which vLLM does not schedule asynchronously (0.32 `VllmConfig.__post_init__`)."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The drafter. The empty method is none."""

    method: str = ""
    num_tokens: int = 0

    @property
    def draft_layers(self) -> bool:
        return self.method in OWN_LAYERS

    @property
    def reads_hidden_states(self) -> bool:
        return self.method in USE_EAGLE or self.draft_layers

    @property
    def asynchronous(self) -> bool:
        return self.method not in SYNCHRONOUS


def read_speculation(config: Mapping[str, Any] | str | None) -> Speculation:
    """From `--speculative-config`. A drafter with a model of its own is refused: its cache would go uncounted."""
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError as error:
            raise UserError(f"--speculative-config is not JSON: {error}") from None
    if config is None:
        return Speculation()
    if not isinstance(config, Mapping):
        raise UserError(f"--speculative-config must be a JSON object, not {type(config).__name__}")
    method = config.get("method")
    if method not in (*OWN_LAYERS, *NO_LAYERS):
        raise UserError(
            f"--speculative-config: method {method!r} drafts with a model whose cache is not known here",
            f"accepted: {', '.join((*OWN_LAYERS, *NO_LAYERS))}; or leave it out and plan without the drafter",
        )
    tokens = config.get("num_speculative_tokens")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise UserError(
            f"--speculative-config: num_speculative_tokens is {tokens!r}", "give an integer of at least 1"
        )
    return Speculation(str(method), tokens)
