"""Find a module's source file without importing anything, parents included.

`importlib.util.find_spec("a.b")` imports `a`; here only the top-level name goes to the finders, and the rest is looked
up in the folders of the package.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path


def find_source(module: str) -> Path | None:
    """The .py file that `import module` would run, or None if there is none (not installed, or not Python source).

    >>> find_source("json.decoder").name
    'decoder.py'
    """
    return _find_source(module, tuple(sys.path))


@lru_cache(maxsize=256)
def _find_source(module: str, sys_path: tuple[str, ...]) -> Path | None:
    top, *below = module.split(".")
    source, folders = _find_top(top)
    for part in below:
        source, folders = _find_below(part, folders)
    return source


def _find_top(name: str) -> tuple[Path | None, list[Path]]:
    """Source file and package folders of a top-level module, as Python's own finders name them."""
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, None, None) if find_spec and name.isidentifier() else None
        if spec is not None:
            is_source = spec.has_location and spec.origin and spec.origin.endswith(".py")
            locations: Iterable[str] = spec.submodule_search_locations or ()
            return Path(spec.origin) if is_source else None, [Path(folder) for folder in locations]
    return None, []


def _find_below(part: str, folders: list[Path]) -> tuple[Path | None, list[Path]]:
    """The same for one more part of a dotted name; a folder without `__init__.py` is a namespace package."""
    for folder in folders:
        package = folder / part
        if (package / "__init__.py").is_file():
            return package / "__init__.py", [package]
        if (folder / f"{part}.py").is_file():
            return folder / f"{part}.py", []
    return None, [folder / part for folder in folders if (folder / part).is_dir()]
