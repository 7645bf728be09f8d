"""Donors as a run asks for them, and as its requests name them."""

from dataclasses import dataclass
from typing import Any

from decodebench.bench.donor_prompts import Text
from decodebench.bench.facts import EngineFacts
from decodebench.errors import UserError
from decodebench.kv.arithmetic import ceil_div

LENGTH = 2048
"""Tokens of a donor unless another number is asked for."""


@dataclass(frozen=True, slots=True)
class DonorOptions:
    """What was asked of the donors."""

    count: int | None = None  # None: one for every request of the largest batch, as far as the bank goes
    length: int | None = None  # tokens; None: LENGTH, or what the model's window needs
    text: Text | None = None  # None: random ids for random weights, the shipped text for real ones

    def length_on(self, facts: EngineFacts, longest: int) -> int:
        """Tokens of each donor, where the longest prompt to fill has `longest`. Raises `UserError`."""
        most = facts.limits.max_model_len - 1  # a donor's request puts out one token
        least: int = min(facts.first["donor_bank"]["min_tokens"], longest)
        if self.length is None:
            return min(max(LENGTH, least), most)
        if self.length < least:
            raise UserError(
                f"--donor-len {self.length}: too short, a window of this model must be full of it: at least {least}",
                f"ask for {least} to {most} tokens, or leave --donor-len out",
            )
        if self.length > most:
            raise UserError(
                f"--donor-len {self.length}: too long for max_model_len {most + 1}, which holds its one output token "
                f"too: at most {most}",
                f"ask for {least} to {most} tokens, or give `-- --max-model-len` a larger value",
            )
        return self.length


@dataclass(frozen=True, slots=True)
class DonorSet:
    """The donors that a server holds, on each of its data-parallel ranks."""

    ids: tuple[str, ...]
    length: int  # tokens of each

    def asked(self, first: int, member: int, batch: int, tokens: int) -> dict[str, Any]:
        """What a request of `tokens` prompt tokens asks of the connector, as number `member` of a batch.

        Where there are as many donors as requests each starts with one of its own, and names more only if its prompt is
        longer than a donor; where there are fewer each names all, and its seed draws page by page.

        `first`: number of the batch's first prompt, so that a repeat starts with other donors.
        """
        count = len(self.ids)
        named = count if count < batch else min(count, ceil_div(tokens, self.length))
        chosen = [self.ids[(first + member + i) % count] for i in range(named)]
        return {"donors": chosen, "seed": first + member}
