"""What can go wrong with built-in models."""

from decodebench.errors import EXIT_ENGINE, DecodebenchError


class RecipeError(DecodebenchError):
    """A built-in model could not be made; the message says why and what to do."""

    exit_code = EXIT_ENGINE
