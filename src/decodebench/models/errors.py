"""What a user's model, config or flags can get wrong. Every message names the field, its value and what is accepted."""

MOST_RANKS = 64  # divisors are named up to here


class ModelError(ValueError):
    """A model that cannot be planned as asked: the message is meant for the user as it stands."""


class ConfigError(ModelError):
    """A config.json that cannot be read, or lacks a key: names file and key."""


class UnknownModelError(ModelError):
    """An architecture, layer type or combination for which no rule is known; nothing is guessed for it."""


def indivisible(ranks: int, count: int, what: str, source: str) -> ModelError:
    """The error for a width that the tensor-parallel ranks do not divide, with the numbers of ranks that do."""
    accepted = ", ".join(str(n) for n in range(1, min(count, MOST_RANKS) + 1) if count % n == 0)
    return ModelError(
        f"--tensor-parallel-size {ranks} does not divide the {count} {what} of {source}; divisors: {accepted}"
    )
