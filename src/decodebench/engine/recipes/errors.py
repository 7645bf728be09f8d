"""What can go wrong with built-in models."""


class RecipeError(Exception):
    """A built-in model could not be found or made; the message says why and what to do."""
