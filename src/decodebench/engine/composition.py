"""Our connector and others side by side: the `MultiConnector` transfer config around them, and who of them wins.

A MultiConnector asks its children in order; the first that has tokens of a request loads it, and every child may store
(`v1/multi_connector.py`, vLLM 0.32). So ours comes first unless a user puts another one before it on purpose.

    siblings = Siblings.read(after=['{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}'])
    siblings.around(ours)   # {"kv_connector": "MultiConnector", ..., "connectors": [ours, the other]}
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from decodebench.errors import UserError
from decodebench.hma import TransferConfigError
from decodebench.hma.config import ConnectorConfig, read_children, read_config

AFTER, BEFORE = "--with-connector", "--with-connector-first"
OUR_NAME = "DecodeBenchConnector"
MULTI = "MultiConnector"

_ROOT_FIELDS = ("engine_id", "kv_load_failure_policy")
"""What children cannot have for themselves in vLLM 0.32.

`MultiConnector._get_connector_classes_and_configs` calls `KVTransferConfig(**child, engine_id=...)`, a TypeError for a
child that names one; the scheduler reads `kv_load_failure_policy` of the whole config only. As fields of the
MultiConnector both hold for every child.
"""


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other connectors, checked: those asked before ours, and those asked after it.

    `lifted` are the fields that were moved from a sibling to the MultiConnector; `notes` say so.
    """

    before: tuple[Mapping[str, Any], ...] = ()
    after: tuple[Mapping[str, Any], ...] = ()
    lifted: tuple[tuple[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, before: Sequence[str] = (), after: Sequence[str] = ()) -> Self:
        """Read the JSON texts of the options; raises `UserError` naming option, field, value and next step."""
        given = [(BEFORE, text) for text in before] + [(AFTER, text) for text in after]
        configs = [(option, _read(option, text)) for option, text in given]
        lifted, notes = [], []
        for field in _ROOT_FIELDS:
            named = [
                (f"{option} {_name(config)}{_at(path)}", value)
                for option, config in configs
                for path, value in _values(config, field)
            ]
            if len({json.dumps(value, sort_keys=True) for _, value in named}) > 1:
                raise _contradiction(field, named)
            if named:
                where, value = named[0]
                lifted.append((field, value))
                notes.append(
                    f"{where}: {field} {value!r} is moved to the MultiConnector, where this vLLM takes it for all of "
                    "its children"
                )
        stripped = [_without(config, _ROOT_FIELDS) for _, config in configs]
        return cls(
            tuple(stripped[: len(before)]), tuple(stripped[len(before) :]), tuple(lifted), tuple(notes)
        )

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    @property
    def names(self) -> tuple[str, ...]:
        """All connectors in the order in which the engine asks them, ours among them."""
        return (*map(_name, self.before), OUR_NAME, *map(_name, self.after))

    def around(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """The transfer config that loads `ours` and its siblings: a MultiConnector, or `ours` alone."""
        if not self:
            return dict(ours)
        children = [*self.before, ours, *self.after]
        return {
            "kv_connector": MULTI,
            "kv_role": "kv_both",
            **dict(self.lifted),
            "kv_connector_extra_config": {"connectors": [dict(child) for child in children]},
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know of this composition: who wins, who may store, what was moved."""
        if not self:
            return ()
        storing = [_name(each) for each in (*self.before, *self.after) if each["kv_role"] != "kv_consumer"]
        private = (
            f"{' and '.join(dict.fromkeys(storing))} may store what this server computes, and most of that is made up: "
            "give it a store that nothing else reads, and empty it after the run"
        )
        return (self._who_wins(), *([private] if storing else []), *self.notes)

    def _who_wins(self) -> str:
        order = (
            f"the engine asks {', then '.join(self.names)}; the first that has tokens of a request loads it: "
        )
        if not self.before:
            return order + "ours, for every request that is to be filled"
        first = " or ".join(dict.fromkeys(map(_name, self.before)))
        return order + f"a point is invalid, and says so, where {first} has some"


ALONE = Siblings()


def _read(option: str, text: str) -> dict[str, Any]:
    """One sibling as the engine will read it."""
    try:
        config = read_config(text)
        for node in _walk(config):
            if node.name == OUR_NAME:
                raise TransferConfigError(
                    node.path,
                    f"{OUR_NAME} is there already: two of them would fill the same blocks",
                    "name only connectors that go beside it; its own settings are options such as --fill",
                )
    except TransferConfigError as error:
        raise UserError(
            f"{option} {_quoted(text)}{_at(error.path)}: {error.problem}",
            error.next_step or "write one connector's transfer config, a JSON object in single quotes",
        ) from None
    found: dict[str, Any] = json.loads(text)
    return found


def _walk(config: ConnectorConfig) -> Iterator[ConnectorConfig]:
    yield config
    if config.name == MULTI:
        for child in read_children(config):
            yield from _walk(child)


def _values(config: Mapping[str, Any], field: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths at which a sibling names `field`, itself ("") or in a child, and the values there."""
    if config.get(field) is not None:
        yield path, config[field]
    for index, child in enumerate(_children(config)):
        yield from _values(child, field, f"{path}.connectors[{index}]".lstrip("."))


def _without(config: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    kept = {name: value for name, value in config.items() if name not in fields}
    if children := _children(config):
        extra = {**config["kv_connector_extra_config"], "connectors": [_without(c, fields) for c in children]}
        kept["kv_connector_extra_config"] = extra
    return kept


def _children(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    if config["kv_connector"] != MULTI:
        return []
    return list(config.get("kv_connector_extra_config", {}).get("connectors", []))


def _contradiction(field: str, named: Sequence[tuple[str, Any]]) -> UserError:
    said = ", ".join(f"{where} names {value!r}" for where, value in named)
    return UserError(
        f"{said}: this vLLM has one {field} for all children of a MultiConnector",
        f"name one {field}, or leave it out",
    )


def _name(config: Mapping[str, Any]) -> str:
    return str(config["kv_connector"])


def _at(path: str) -> str:
    return f", {path}" if path else ""


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
