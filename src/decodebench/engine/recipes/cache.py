"""Where built-in models lie on disk: made once a user, found again by what they are made of.

An entry is `<root>/models/<name>-<key>/`; the key covers everything the bytes depend on, so another version of
transformers or another configuration is another entry. An entry appears by one rename, complete or not at all, and
carries the digest of every file: one that was changed or truncated since is made again.
"""

import hashlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from decodebench.engine.recipes.errors import RecipeError

if TYPE_CHECKING:
    from decodebench.engine.recipes.base import Recipe

ROOT = "DECODEBENCH_CACHE_DIR"
"""Environment variable that overrides the user's cache directory."""

DIGESTS = "digests.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One model directory in the cache."""

    path: Path
    num_bytes: int

    @property
    def name(self) -> str:
        return self.path.name


def root() -> Path:
    """`$DECODEBENCH_CACHE_DIR`, else `decodebench` in the user's cache directory (`$XDG_CACHE_HOME`, `~/.cache`)."""
    if override := os.environ.get(ROOT):
        return Path(override).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "decodebench"


def key(recipe: "Recipe") -> str:
    """Twelve hex digits that change when anything changes which the model's bytes depend on."""
    made_of = {
        "code": {name: _digest(Path(__file__).with_name(f"{name}.py")) for name in ("weights", "tokenizer")},
        "finish": _digest(Path(inspect.getfile(recipe.finish))) if recipe.finish else None,
        "config": dict(recipe.config),
        "dtype": recipe.dtype,
        "seed": recipe.seed,
        "versions": {name: _version(name) for name in ("torch", "transformers")},
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]


def find(recipe: "Recipe") -> Path | None:
    """The entry of a recipe, if it is there and every byte is what was written."""
    path = _path(recipe)
    return path if _is_intact(path) else None


def obtain(recipe: "Recipe") -> Path:
    """The entry of a recipe, made if need be. Two processes that make it at once end with one entry."""
    path = _path(recipe)
    if _is_intact(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        _build(recipe.name, scratch)
        (scratch / DIGESTS).write_text(json.dumps(_digests(scratch), indent=2))
        _publish(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path


def entries() -> list[Entry]:
    """Everything in the cache, half-made remains of killed processes included."""
    models = root() / "models"
    paths = sorted(path for path in models.iterdir() if path.is_dir()) if models.is_dir() else []
    return [Entry(path, sum(f.stat().st_size for f in path.rglob("*") if f.is_file())) for path in paths]


def clean() -> list[Entry]:
    """Remove every entry; says what was removed."""
    removed = entries()
    for entry in removed:
        shutil.rmtree(entry.path)
    return removed


def _path(recipe: "Recipe") -> Path:
    return root() / "models" / f"{recipe.name}-{key(recipe)}"


def _build(name: str, directory: Path) -> None:
    command = [sys.executable, "-m", "decodebench.engine.recipes.build", name, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecipeError(f"The built-in model {name} could not be made: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "the process that makes it ended without a word"


def _publish(scratch: Path, path: Path) -> None:
    if path.exists() and not _is_intact(path):
        shutil.rmtree(path)
    try:
        scratch.rename(path)
    except OSError:
        if not _is_intact(path):  # not lost to another process that made the same
            raise


def _is_intact(path: Path) -> bool:
    try:
        return bool(json.loads((path / DIGESTS).read_text()) == _digests(path))
    except (OSError, ValueError):
        return False


def _digests(directory: Path) -> dict[str, str]:
    return {path.name: _digest(path) for path in sorted(directory.iterdir()) if path.name != DIGESTS}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"
