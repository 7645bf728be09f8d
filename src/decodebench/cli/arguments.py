"""Reading our own command line: what is ours, what is the engine's, and what a mistyped option may have meant."""

import argparse
import os
from collections.abc import Sequence
from typing import NoReturn

from decodebench.errors import UserError


def split_engine_args(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """(our arguments, the engine's): the first `--` parts them.

    >>> split_engine_args(["run", "m", "--", "-dp", "4"])
    (['run', 'm'], ('-dp', '4'))
    """
    args = list(argv)
    if "--" not in args:
        return args, ()
    at = args.index("--")
    return args[:at], tuple(args[at + 1 :])


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse makes one for every argument and asks `shutil` for the width, which loads three compressors."""
    return argparse.HelpFormatter(prog, width=_terminal_width() - 2)


def _terminal_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size().columns or 80
    except (OSError, ValueError):  # not a terminal, or closed
        return 80


class Parser(argparse.ArgumentParser):
    """argparse whose errors are `UserError`s that know the near misses and the engine's own flags."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _formatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        raise UserError(message, f"see `{self.prog} --help`")

    def _refuse(self, unknown: str) -> NoReturn:
        import difflib

        from decodebench.engine.flags import is_engine_flag

        option = unknown.partition("=")[0]
        if not option.startswith("-"):
            raise UserError(f"unexpected argument {unknown!r}", f"see `{self.prog} --help`")
        near = difflib.get_close_matches(option, self._option_string_actions, n=1, cutoff=0.75)
        if near:
            raise UserError(f"unknown option {option}", f"did you mean {near[0]}?")
        if is_engine_flag(option):
            raise UserError(
                f"{option} is an option of vLLM",
                f"put it after `--`, where everything goes to `vllm serve`: {self.prog} ... -- {unknown}",
            )
        raise UserError(
            f"unknown option {option}",
            f"see `{self.prog} --help`; vLLM's own options go after `--`",
        )
