"""What a user's model, config or flags can get wrong. Every message names the field, its value and what is accepted."""


class ModelError(ValueError):
    """A model that cannot be planned as asked: the message is meant for the user as it stands."""


class ConfigError(ModelError):
    """A config.json that cannot be read, or lacks a key: names file and key."""


class UnknownModelError(ModelError):
    """An architecture, layer type or combination for which no rule is known; nothing is guessed for it."""
