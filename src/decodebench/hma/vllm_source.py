"""The vLLM that is installed, read from its files: its version and its register of connectors."""

import ast
import re
from functools import lru_cache

from decodebench.hma.modules import find_source

FACTORY = "vllm.distributed.kv_transfer.kv_connector.factory"


def installed_version() -> str | None:
    """The version of the vLLM that this Python would import; None if there is none."""
    path = find_source("vllm._version")
    if path is None:
        return None
    found = re.search(
        r"^(?:__version__ = )?version = ['\"]([^'\"]+)['\"]", path.read_text(encoding="utf-8"), re.M
    )
    return found.group(1) if found else None


@lru_cache(maxsize=1)
def registered_connectors() -> dict[str, tuple[str, str]]:
    """{name: (module, class)} of every connector that vLLM registers itself; empty where vLLM is not installed."""
    path = find_source(FACTORY)
    if path is None:
        return {}
    calls = (
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    )
    registered: dict[str, tuple[str, str]] = {}
    for call in calls:
        if not ast.unparse(call.func).endswith(".register_connector"):
            continue
        given = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        if len(given) == 3 and all(isinstance(value, str) for value in given):
            registered[str(given[0])] = (str(given[1]), str(given[2]))
    return registered
