"""decodebench: measure the decode phase of LLM servers without running prefill.

Importing the package is free: the server side (`connector`, `fill`, `kv`) must load inside vLLM's processes with
nothing but the standard library, torch and vLLM, and `--help` must not wait for any of them.
"""

__version__ = "0.1.0"
