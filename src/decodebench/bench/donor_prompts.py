"""The prompts of donors: random ids for random weights, text for real ones.

With random weights every token is as good as another. A trained model's attention, expert routing and index scores
depend on what it reads, so there a donor reads text: paragraphs of a text set in another random order for every donor,
tokenised by the server itself.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from random import Random

from decodebench.bench.prompts import PromptSource
from decodebench.errors import UserError

FIRST = 1 << 40
"""Number of the first donor's prompt: beyond those of any cohort, so that no donor is a prompt that is measured."""
MOST_COMMON = 0.5
"""A text of which one token makes up more than this share is one that the tokenizer cannot read."""
CHARACTERS_A_TOKEN = 8
"""What is sent to the tokenizer for every token wanted; text that makes fewer tokens is sent in a longer piece."""
LONGEST_TEXT = 1 << 26


class Unreadable(Exception):
    """The server's tokenizer makes no use of a text."""


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs, told apart by blank lines."""

    paragraphs: tuple[str, ...]
    name: str = "own text"

    @classmethod
    def shipped(cls) -> "Text":
        """The text set of this package: prose, notes, code, tables and logs."""
        text = cls.of((files("decodebench.bench") / "donor_text.txt").read_text(encoding="utf-8"))
        return cls(text.paragraphs, "shipped text")

    def halves(self) -> tuple["Text", "Text"]:
        """Every other paragraph, and the rest."""
        return Text(self.paragraphs[::2], self.name), Text(self.paragraphs[1::2], self.name)

    @classmethod
    def read(cls, path: Path) -> "Text":
        """Raises `UserError` if the file holds no text."""
        try:
            text = cls.of(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--donor-text {path}: {error}", "give a text file in UTF-8") from None
        if not text.paragraphs:
            raise UserError(f"--donor-text {path}: holds no text", "give a text file in UTF-8")
        return text

    @classmethod
    def of(cls, text: str) -> "Text":
        return cls(tuple(part for part in text.split("\n\n") if part.strip()))

    def shuffled(self, draw: Random, characters: int) -> str:
        """At least so many characters: the paragraphs in random order, and in another one once all are used."""
        parts: list[str] = []
        length = 0
        while length < characters:
            for part in draw.sample(self.paragraphs, len(self.paragraphs)):
                parts.append(part)
                length += len(part) + 2
                if length >= characters:
                    break
        return "\n\n".join(parts)


def random_ids(source: PromptSource, number: int, length: int) -> list[int]:
    """The prompt of the `number`-th donor, of ids that mean nothing."""
    return [int(each) for piece in source.tokens(FIRST + number, length) for each in piece]


async def text_ids(
    text: Text, seed: int, number: int, length: int, tokenize: Callable[[str], Awaitable[Sequence[int]]]
) -> list[int]:
    """The prompt of the `number`-th donor, of text. Raises `Unreadable`."""
    characters = CHARACTERS_A_TOKEN * length
    while True:
        ids = await tokenize(text.shuffled(Random(f"{seed}/{number}"), characters))
        if len(ids) >= length:
            break
        if characters > LONGEST_TEXT:
            raise Unreadable(f"{characters:,} characters of it are only {len(ids):,} tokens")
        characters *= 4
    prompt = list(islice(ids, length))
    token, times = Counter(prompt).most_common(1)[0]
    if times > MOST_COMMON * length and length > 1:
        raise Unreadable(f"{times:,} of its {length:,} tokens are the same one ({token})")
    return prompt
