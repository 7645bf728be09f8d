"""The connectors of a transfer config as a tree, each with its class, and what they say about the hybrid manager."""

from collections.abc import Iterator
from dataclasses import dataclass

from decodebench.hma.config import ConnectorConfig, TransferConfigError, read_children
from decodebench.hma.facts import ClassMissing, ConnectorClass, Unknown
from decodebench.hma.version import NEWEST, OLDEST, Version, show

MAX_CONNECTORS = 1000


@dataclass(frozen=True, slots=True)
class Node:
    """One connector: its config, its class and, if that is a MultiConnector, its children."""

    config: ConnectorConfig
    found: ConnectorClass | Unknown
    children: tuple["Node", ...] = ()

    def walk(self) -> Iterator["Node"]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Support:
    """Whether the tree supports the manager (None: cannot tell), which connector says so, and why."""

    supported: bool | None
    path: str
    reason: str


def build_tree(root: ConnectorConfig, version: Version, allow_import: bool) -> Node:
    """Look up every connector; raises `TransferConfigError` with the path of one that the engine would die of."""
    from decodebench.hma.lookup import look_up  # reads sources: not needed where there is no connector

    left = MAX_CONNECTORS

    def build(config: ConnectorConfig) -> Node:
        nonlocal left
        left -= 1
        if left < 0:
            raise TransferConfigError(config.path, f"more than {MAX_CONNECTORS} connectors")
        try:
            found = look_up(config, version, allow_import)
        except ClassMissing as missing:
            raise TransferConfigError(config.path, str(missing)) from None
        if isinstance(found, Unknown):
            return Node(config, found)
        if found.broken:
            raise TransferConfigError(
                config.path,
                f"{found.name} declares SupportsHMA but has no request_finished_all_groups, only the hook for a single "
                "group: the engine takes it for a connector with HMA support and then cannot construct it",
                "implement request_finished_all_groups, or do not derive from SupportsHMA",
            )
        if not found.is_multi:
            return Node(config, found)
        return Node(config, found, tuple(build(child) for child in read_children(config)))

    return build(root)


def support_of(node: Node) -> Support:
    """A connector supports the manager if its class does; a MultiConnector if it has children and each of them does."""
    path, name, found = node.config.path, node.config.name, node.found
    if isinstance(found, Unknown):
        return Support(None, path, f"{name}: {found.reason}")
    if not found.declares_hma:
        return Support(
            False, path, f"{name} does not support the hybrid KV cache manager (not a SupportsHMA)"
        )
    if not found.is_multi and name == "MultiConnector":
        return Support(
            False, path, "it is named MultiConnector but is none: the engine looks for children, in vain"
        )
    if not found.is_multi:
        return Support(True, path, f"{name} supports the hybrid KV cache manager")
    if not node.children:
        return Support(False, path, f"{name} has no children, and without any it supports nothing")
    answers = [support_of(child) for child in node.children]
    for wanted in (False, None):
        for answer in answers:
            if answer.supported is wanted:
                return answer
    return Support(True, path, f"every child of {name} supports the hybrid KV cache manager")


def engine_warnings(root: Node, version: Version) -> tuple[str, ...]:
    """What the engine of this version makes of the `engine_id`s of children: it dies, or two engines share one."""
    warnings = []
    seen: dict[str, str] = {} if root.config.engine_id is None else {root.config.engine_id: "the parent"}
    for node in root.walk():
        own, path = node.config.own_engine_id, node.config.path
        if not path or own is None:
            continue
        if OLDEST <= version <= NEWEST:
            warnings.append(
                f"{path} names its own engine_id: vLLM {show(version)} cannot start with it, its MultiConnector raises "
                "TypeError (multiple values for keyword argument 'engine_id'); leave it out there"
            )
        if own in seen:
            warnings.append(f"{path} names the engine_id {own!r} that {seen[own]} has already")
        seen.setdefault(own, path)
    return tuple(warnings)
