"""decodebench: measure the decode phase of LLM servers without running prefill.

Importing the package is free: the server side (`connector`, `fill`, `kv`) must load inside vLLM's processes with
nothing but the standard library, torch and vLLM, and `--help` must not wait for any of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodebench.planner.plan import plan

__version__ = "0.1.0"
__all__ = ["__version__", "plan"]


def __getattr__(name: str) -> Any:
    if name == "plan":
        from decodebench.planner.plan import plan

        return plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
