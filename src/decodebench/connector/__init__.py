"""What runs inside vLLM: the decode-bench KV connector.

vLLM loads it by `"kv_connector": "DecodeBenchConnector", "kv_connector_module_path": "decodebench.connector"`. The
class is imported on first use, so that clients may read the request parameters' contract without torch or vLLM.
"""

from typing import Any

__all__ = ["DecodeBenchConnector"]


def __getattr__(name: str) -> Any:
    if name == "DecodeBenchConnector":
        from decodebench.connector.connector import DecodeBenchConnector

        return DecodeBenchConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
