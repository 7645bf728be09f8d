"""Ask an imported connector class what it supports."""

import ast
import inspect
import sys
import textwrap

from decodebench.hma.facts import ConnectorClass, KnownBy
from decodebench.hma.source import ALL_GROUPS_HOOK, is_stub

_V1 = "vllm.distributed.kv_transfer.kv_connector.v1"


def ask_class(connector: type) -> ConnectorClass:
    """The facts about a class, by the tests that vLLM makes: is it a subclass of `SupportsHMA`, of `MultiConnector`?"""
    return ConnectorClass(
        name=connector.__name__,
        declares_hma=_derives(connector, f"{_V1}.base", "SupportsHMA"),
        finishes_all_groups=_finishes_all_groups(connector),
        is_multi=_derives(connector, f"{_V1}.multi_connector", "MultiConnector"),
        known_by=KnownBy.CLASS,
    )


def _derives(connector: type, module: str, name: str) -> bool:
    """Whether `connector` derives from a class of vLLM. Not loaded: it cannot, then."""
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(connector, base)


def _finishes_all_groups(connector: type) -> bool:
    hook = getattr(connector, ALL_GROUPS_HOOK, None)
    if hook is None or getattr(hook, "__isabstractmethod__", False):
        return False
    try:
        statement = ast.parse(textwrap.dedent(inspect.getsource(hook))).body[0]
    except (OSError, TypeError, SyntaxError):
        return True  # no source to read: it is not abstract, so it is taken at its word
    return not (isinstance(statement, ast.FunctionDef) and is_stub(statement))
