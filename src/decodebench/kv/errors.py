"""Why an engine would not start with a given set of KV caches."""


class CannotStart(ValueError):
    """This vLLM version refuses these KV caches at start-up; the message says which and why."""
