"""Prompts of text, for the requests that stand for real ones on a model with real weights.

Every paragraph is tokenised once by the server; a prompt is the paragraphs in a random order of its own, cut to length.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True, slots=True)
class TextPrompts:
    """Draws prompts as `PromptSource` does, of text."""

    seed: int
    paragraphs: tuple[tuple[int, ...], ...]  # token ids

    def body(self, number: int, length: int, fields: Mapping[str, Any]) -> Iterator[bytes]:
        """The JSON body of a completion request: `fields` and the prompt."""
        yield json.dumps(dict(fields) | {"prompt": self.tokens(number, length)}).encode()

    def tokens(self, number: int, length: int) -> list[int]:
        """The `number`-th prompt."""
        draw = Random(f"{self.seed}/{number}/prompt")
        ids: list[int] = []
        while len(ids) < length:
            for paragraph in draw.sample(self.paragraphs, len(self.paragraphs)):
                ids += paragraph
        return ids[:length]
