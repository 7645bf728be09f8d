"""Writing a file so that a crash at any moment leaves the old one or the new one, never a part."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decodebench.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; once the block has written it, it becomes `path`, on disk."""
    temporary = path.with_name(f".{path.name}.partial")
    with storage_errors(path):
        try:
            yield temporary
            _sync(temporary)
            os.replace(temporary, path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """An error of the file system becomes one message that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        next_step = (
            "free some space or choose another directory with --out; what was written before is intact"
        )
        raise UserError(f"cannot write {path}: {reason}", next_step) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
