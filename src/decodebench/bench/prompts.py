"""Random prompts, written straight into request bodies.

A prompt is random token ids that share nothing with any other of the run: its first tokens spell its own number, so two
prompts differ within the first block whatever the block size, and no prefix is ever shared. Special ids (end of text,
image placeholders) are left out. Tokens are drawn and written in pieces, so that a thousand prompts of 128k tokens need
no memory beside the pieces in flight.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.facts import EngineFacts

PIECE_TOKENS = 16_384

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PromptSource:
    """Draws the prompts of one run."""

    seed: int
    allowed: Ids  # ids that may appear

    @classmethod
    def of(cls, seed: int, vocab_size: int, special: Collection[int]) -> "PromptSource":
        allowed = np.setdiff1d(
            np.arange(vocab_size, dtype=np.int64), np.fromiter(special, np.int64, len(special))
        )
        assert len(allowed) >= 2, f"a vocabulary of {vocab_size} tokens leaves no ids to draw from"
        return cls(seed, allowed)

    @classmethod
    def for_engine(cls, seed: int, facts: EngineFacts) -> "PromptSource":
        return cls.of(seed, facts.first["vocab_size"], facts.first["special_token_ids"])

    def tokens(self, number: int, length: int) -> Iterator[Ids]:
        """The `number`-th prompt in pieces."""
        generator = np.random.Generator(np.random.Philox(key=[self.seed & (2**64 - 1), number]))
        head = self._spelled(number)[:length]
        yield head
        left = length - len(head)
        while left:
            size = min(left, PIECE_TOKENS)
            left -= size
            yield self.allowed[generator.integers(len(self.allowed), size=size)]

    def body(self, number: int, length: int, fields: Mapping[str, Any]) -> Iterator[bytes]:
        """The JSON body of a completion request: `fields` and the prompt."""
        yield json.dumps(fields)[:-1].encode() + b', "prompt": ['
        separator = b""
        for piece in self.tokens(number, length):
            yield separator + ",".join(map(str, piece.tolist())).encode()
            separator = b","
        yield b"]}"

    def _spelled(self, number: int) -> Ids:
        """`number` in base len(allowed), least digit first: distinct for every prompt, and shorter than a block."""
        digits: list[int] = []
        while number or not digits:
            number, digit = divmod(number, len(self.allowed))
            digits.append(digit)
        return self.allowed[np.array(digits, dtype=np.int64)]
