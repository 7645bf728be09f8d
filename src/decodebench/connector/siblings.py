"""The connectors that the engine asks beside ours, when ours is a child of a MultiConnector.

NOTE: a child gets a copy of the engine's configuration in which the transfer config is its own (vLLM 0.32
`v1/multi_connector.py _get_connector_classes_and_configs`), which looks as if it were alone. What the scheduler's
output of a step carries tells: the metadata of all children in their order, or ours alone.
"""

from collections.abc import Sequence


def connectors_in(step_metadata: object, ours: type, named: Sequence[str]) -> tuple[str, ...]:
    """The children of the engine's MultiConnector in the order in which they are asked; none if ours is alone.

    `step_metadata` is the connector metadata of a scheduled step, `ours` the class of our own. The names are those
    `named` in our settings where they can be right, else those of the metadata classes.
    """
    if step_metadata is None or isinstance(step_metadata, ours):
        return ()
    children = getattr(step_metadata, "metadata", None)
    if not isinstance(children, tuple):
        return ()
    return tuple(named) if len(named) == len(children) else tuple(type(child).__name__ for child in children)
