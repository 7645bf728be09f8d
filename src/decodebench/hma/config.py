"""A `--kv-transfer-config` as data: read strictly, every fault named by its path (`connectors[1].connectors[0]`).

The rules are those of vLLM's `config/kv_transfer.py KVTransferConfig` (fields, roles) and of
`v1/multi_connector.py MultiConnector` (children in `kv_connector_extra_config["connectors"]`, each of them a transfer
config again, which inherits the parent's `engine_id` unless it names its own).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decodebench.errors import UserError

ROLES = ("kv_producer", "kv_consumer", "kv_both")
FIELDS = (
    "kv_connector",
    "engine_id",
    "kv_buffer_device",
    "kv_role",
    "kv_port",
    "kv_connector_extra_config",
    "kv_connector_module_path",
    "enable_permute_local_kv",
    "kv_load_failure_policy",
)
FIELDS_UNTIL_0_31 = ("kv_buffer_size", "kv_rank", "kv_parallel_size", "kv_ip")
MAX_DEPTH = 16
"""Levels of MultiConnector in MultiConnector; deeper is taken for a mistake (or an object that contains itself)."""


class TransferConfigError(UserError, ValueError):
    """A transfer config that the engine would refuse or die of; `path` says where, "" is the config itself."""

    def __init__(self, path: str, problem: str, next_step: str = "") -> None:
        super().__init__(f"--kv-transfer-config{f', {path}' if path else ''}: {problem}", next_step)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """One connector of the config. `engine_id` is the one in force, `own_engine_id` the one it names itself."""

    path: str
    name: str
    module_path: str | None
    role: str
    engine_id: str | None
    own_engine_id: str | None
    extra: Mapping[str, Any]


def read_config(given: object) -> ConnectorConfig:
    """The root of a transfer config: JSON text, a mapping, or vLLM's own `KVTransferConfig`."""
    if isinstance(given, str | bytes):
        given = _from_json(given)
    elif not isinstance(given, Mapping) and hasattr(given, "kv_connector"):
        given = {field: getattr(given, field) for field in FIELDS if hasattr(given, field)}
    return _read(given, "", None)


def read_children(parent: ConnectorConfig) -> tuple[ConnectorConfig, ...]:
    """The children of a MultiConnector; none if the list is empty or missing."""
    given = parent.extra.get("connectors", [])
    if not isinstance(given, list | tuple):
        raise TransferConfigError(
            parent.path,
            f"`connectors` must be a list of transfer configs, not {_show(given)}",
            'write it as in {"kv_connector_extra_config": {"connectors": [{"kv_connector": ...}]}}',
        )
    children = []
    for index, child in enumerate(given):
        path = f"{parent.path}.connectors[{index}]".lstrip(".")
        if path.count("connectors[") > MAX_DEPTH:
            raise TransferConfigError(
                path, f"nested more than {MAX_DEPTH} levels deep", "put the connectors into one list"
            )
        children.append(_read(child, path, parent.engine_id))
    return tuple(children)


def _from_json(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise TransferConfigError(
            "", f"not JSON: {problem}", "quote the whole object with single quotes"
        ) from None


def _read(given: object, path: str, parent_engine_id: str | None) -> ConnectorConfig:
    if not isinstance(given, Mapping):
        raise TransferConfigError(path, f"must be an object with `kv_connector`, not {_show(given)}")
    for key in given:
        if key not in FIELDS + FIELDS_UNTIL_0_31:
            raise TransferConfigError(
                path, f"unknown field {_show(key)}", f"known fields: {', '.join(FIELDS)}"
            )
    name = _text(given, "kv_connector", path)
    if not name:
        raise TransferConfigError(path, "`kv_connector` is missing", "name the connector's class")
    module_path = _text(given, "kv_connector_module_path", path)
    if module_path == "":
        raise TransferConfigError(
            path, "`kv_connector_module_path` is empty", "name the Python module, or leave it out"
        )
    own_engine_id = _text(given, "engine_id", path)
    extra = given.get("kv_connector_extra_config", {})
    if not isinstance(extra, Mapping):
        raise TransferConfigError(path, f"`kv_connector_extra_config` must be an object, not {_show(extra)}")
    return ConnectorConfig(
        path=path,
        name=name,
        module_path=module_path,
        role=_role(given, path),
        engine_id=parent_engine_id if own_engine_id is None else own_engine_id,
        own_engine_id=own_engine_id,
        extra=extra,
    )


def _text(given: Mapping[str, Any], field: str, path: str) -> str | None:
    value = given.get(field)
    if value is not None and not isinstance(value, str):
        raise TransferConfigError(path, f"`{field}` must be a string, not {_show(value)}")
    return value


def _role(given: Mapping[str, Any], path: str) -> str:
    role = given.get("kv_role")
    if role is None:
        raise TransferConfigError(path, "`kv_role` is missing", f"add one of {', '.join(ROLES)}")
    if role not in ROLES:
        raise TransferConfigError(path, f"unknown `kv_role` {_show(role)}", f"use one of {', '.join(ROLES)}")
    return str(role)


def _show(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
