"""A pasted `vllm serve` line: its model, its environment and the options that the plan depends on.

    VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve deepseek-ai/DeepSeek-V4-Flash -dp 4 -ep --kv-cache-dtype fp8 --port 8000

Options that do not shape the cache are left aside and named, so that nobody believes they were taken into account.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decodebench.errors import UserError
from decodebench.planner.arguments import OPTION_OF, read_option

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SERVERS = ("vllm.entrypoints.openai.api_server",)


@dataclass(frozen=True, slots=True)
class PastedLine:
    """What the line says. `arguments` are fields of `EngineArguments`; `ignored` the names of the other options."""

    model: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def read_pasted(words: Sequence[str]) -> PastedLine:
    """Read `[NAME=value ...] [vllm serve | python -m ...api_server] [MODEL] [options]`."""
    if not words:
        return PastedLine()
    from decodebench.engine.flags import Flag, parse_flags

    rest = list(words)
    env: dict[str, str] = {}
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    rest = _after_command(rest)
    bare: list[str] = []  # words that belong to no option
    arguments: dict[str, Any] = {}
    ignored: list[str] = []

    def take(flag: Flag) -> None:
        negated = flag.name.startswith("--no-") and "--" + flag.name[5:] in OPTION_OF
        option = OPTION_OF.get("--" + flag.name[5:] if negated else flag.name)
        extra = rest[flag.start + 1 : flag.end]
        if flag.name == "--model" and flag.value is not None:
            bare.append(flag.value)
        elif option is None:
            ignored.append(flag.name)
        elif flag.key:
            raise UserError(
                f"{flag.name}.{flag.key}: the dotted form is not read here",
                f"give the whole object: {flag.name} '{{...}}'",
            )
        elif option.read is None:
            arguments[option.field] = not negated
            bare.extend(extra)
        else:
            arguments[option.field] = read_option(option, flag.value)
            bare.extend(extra if "=" in rest[flag.start] else extra[1:])

    at = 0
    for flag in parse_flags(rest):
        bare.extend(rest[at : flag.start])
        take(flag)
        at = flag.end
    bare.extend(rest[at:])
    if len(set(bare)) > 1:
        raise UserError(
            f"the pasted line names several models: {', '.join(bare)}", "quote values that contain blanks"
        )
    return PastedLine(bare[0] if bare else None, env, arguments, tuple(dict.fromkeys(ignored)))


def _after_command(words: list[str]) -> list[str]:
    """The words behind the command itself; a line of options alone is taken as it is."""
    for at, word in enumerate(words):
        if word.startswith("--"):
            break
        if word == "serve" or word in _SERVERS:
            return words[at + 1 :]
    return words
