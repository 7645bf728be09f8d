"""Find the class behind one connector of a transfer config, as the engine will, without running code of a config."""

import importlib
import sys
from typing import Any

from decodebench.hma.asked import ask_class
from decodebench.hma.config import ConnectorConfig
from decodebench.hma.facts import ClassMissing, ConnectorClass, Unknown
from decodebench.hma.known import OUR_CLASS, OURS, REPLACED, REPLACED_SINCE, look_up_known
from decodebench.hma.modules import find_source
from decodebench.hma.source import read_class
from decodebench.hma.version import NEWEST, Version, parse_version, show
from decodebench.hma.vllm_source import FACTORY, installed_version, registered_connectors


def look_up(config: ConnectorConfig, version: Version, allow_import: bool) -> ConnectorClass | Unknown:
    """The facts about a connector's class.

    A module path wins over the register, as in the engine. With `allow_import` the class is imported and asked;
    otherwise it is asked if its module is loaded already, else read from its source; registered names of a vLLM
    version that is not installed come from the table. Raises `ClassMissing` where the engine would find no class.
    """
    if config.module_path is not None:
        return _out_of_tree(config.module_path, config.name, allow_import)
    installed = installed_version()
    if installed is None or parse_version(installed) != version:
        return look_up_known(config.name, version)
    return _registered(config.name, version, allow_import)


def _out_of_tree(module: str, name: str, allow_import: bool) -> ConnectorClass | Unknown:
    if (module, name) == OURS and not allow_import:
        return OUR_CLASS  # asking the loaded package for it would import torch and vLLM
    loaded = sys.modules.get(module)
    if loaded is None and allow_import:
        try:
            loaded = importlib.import_module(module)
        except Exception as error:  # whatever the module does when it runs
            return Unknown(f"importing {module!r} failed: {type(error).__name__}: {error}")
    if loaded is not None:
        return _from_module(loaded, module, name)
    found = read_class(module, name)
    if isinstance(found, Unknown):
        return Unknown(f"{found.reason}; importing it was not allowed")
    return found


def _from_module(loaded: object, module: str, name: str) -> ConnectorClass:
    found = getattr(loaded, name, None)
    if not isinstance(found, type):
        raise ClassMissing(f"module {module!r} has no class {name!r}")
    return ask_class(found)


def _registered(name: str, version: Version, allow_import: bool) -> ConnectorClass | Unknown:
    """A name without a module path, at the version that is installed."""
    if allow_import:
        _load_register()
    loader = _loaded_register().get(name)
    in_tree = registered_connectors().get(name)
    if loader is not None and (allow_import or in_tree is None):
        try:
            return ask_class(loader())
        except ImportError:
            pass  # a dependency of that connector is missing here: its source still says what it declares
    if in_tree is None:
        return _unregistered(name, version, loaded=allow_import)
    if name in REPLACED and version >= REPLACED_SINCE and find_source(REPLACED[name][0]) is not None:
        return read_class(*REPLACED[name])
    if name == "MultiConnector" and version <= NEWEST:
        return look_up_known(name, version)  # its long source would tell no more: its children decide
    found = read_class(*in_tree)
    return look_up_known(name, version) if isinstance(found, Unknown) else found


def _load_register() -> None:
    """What the engine does first: import the factory and let the installed plugins register theirs."""
    try:
        importlib.import_module(FACTORY)
        importlib.import_module("vllm.plugins").load_general_plugins()
    except ImportError:
        return  # vLLM does not import here; its sources are read instead


def _loaded_register() -> dict[str, Any]:
    factory = sys.modules.get(FACTORY)
    return dict(factory.KVConnectorFactory._registry) if factory is not None else {}


def _unregistered(name: str, version: Version, loaded: bool) -> Unknown:
    from importlib.metadata import entry_points

    points = entry_points(group="vllm.general_plugins")
    plugins = sorted(
        point.name for point in points if not point.value.startswith("vllm.")
    )  # vLLM ships some itself
    if loaded or not plugins:
        raise ClassMissing(
            f"vLLM {show(version)} registers no connector {name!r}: give its module in `kv_connector_module_path`, "
            f"or one of {', '.join(sorted(registered_connectors()))}"
        )
    return Unknown(f"vLLM {show(version)} itself registers no {name!r}; a plugin may ({', '.join(plugins)})")
