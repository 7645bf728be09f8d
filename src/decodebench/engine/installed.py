"""Which of the packages that matter are installed, found without importing any of them."""

from importlib import metadata
from importlib.util import find_spec

from decodebench.errors import UserError

INSTALL_CPU = "pip install '.[cpu]'   (in decodebench's repository)"
INSTALL_GPU = "pip install vllm"


def version_of(*distributions: str) -> str | None:
    """`name version` of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def has_vllm() -> bool:
    return find_spec("vllm") is not None


def require_vllm() -> None:
    """Raise a `UserError` with the command that installs vLLM, if there is none."""
    if not has_vllm():
        raise UserError(
            "vLLM is not installed beside decodebench, and without it no engine can be started",
            f"without a GPU: {INSTALL_CPU}\n     with a GPU: {INSTALL_GPU}",
        )
