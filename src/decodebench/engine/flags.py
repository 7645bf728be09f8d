"""The options of the installed `vllm serve`, read from its source text, and reading them from a command line.

Importing vLLM takes many seconds, which an error message must not; its options are string literals of two files and
the field names of one class, and these are found without importing anything (vLLM 0.32 `engine/arg_utils.py`,
`entrypoints/launchers/cli_args.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_LITERAL = re.compile(r"""["'](--[a-z][a-z0-9-]+|-[a-z]{1,4})["']""")
_PAIR = re.compile(r"""["'](--[a-z][a-z0-9-]+)["'],\s*["'](-[a-z]{1,4})["']""")
_FIELD = re.compile(r"^    ([a-z][a-z0-9_]+): ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Flag:
    """One option on the engine's command line, and where it stands."""

    name: str  # spelled in full, without `=value` and without `.key`
    value: str | None  # None: a switch
    key: str  # what follows the first dot (`--speculative-config.method`), empty mostly
    start: int
    end: int  # index after its last argument


def parse_flags(args: Sequence[str]) -> Iterator[Flag]:
    """The options among `args` as vLLM's parser reads them: `_` counts as `-`, short and cut names are spelled out."""
    at = 0
    while at < len(args):
        start, at = at, at + 1
        if not _is_option(args[start]):
            continue
        option, equals, value = args[start].partition("=")
        name, _, key = option.partition(".")
        while not equals and at < len(args) and not _is_option(args[at]):
            at += 1
        if not equals and at == start + 1:
            yield Flag(_full_name(name), None, key, start, at)
        else:
            yield Flag(_full_name(name), value if equals else args[start + 1], key, start, at)


def _full_name(name: str) -> str:
    """vLLM's parser also takes `--max-model` for `--max-model-len`, as long as only one option begins so."""
    name = _known().spelled_out.get(name, name.replace("_", "-"))
    known = _known().names
    if name in known or not name.startswith("--"):
        return name
    begin_so = [flag for flag in known if flag.startswith(name)]
    return begin_so[0] if len(begin_so) == 1 else name


def is_engine_flag(option: str) -> bool:
    """Whether the installed vLLM knows this option; False where no vLLM is installed."""
    name = option.partition("=")[0].split(".", 1)[0].replace("_", "-")
    known = _known().names
    return name in known or (name.startswith("--no-") and "--" + name[5:] in known)


def _is_option(arg: str) -> bool:
    return len(arg) > 1 and arg[0] == "-" and not arg[1].isdigit()


@dataclass(frozen=True, slots=True)
class _Options:
    names: frozenset[str]
    spelled_out: Mapping[str, str]  # short name -> full name


@cache
def _known() -> _Options:
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return _Options(frozenset(), {})
    root = Path(spec.submodule_search_locations[0])
    engine, frontend = _text(root / "engine/arg_utils.py"), _text(root / "entrypoints/launchers/cli_args.py")
    names = {*_LITERAL.findall(engine), *_LITERAL.findall(frontend)}
    names.update("--" + field.replace("_", "-") for field in _FIELD.findall(frontend))
    return _Options(frozenset(names), {short: name for name, short in _PAIR.findall(engine + frontend)})


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
