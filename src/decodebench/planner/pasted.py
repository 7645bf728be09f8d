"""A pasted `vllm serve` line: its model, its environment and the options that the plan depends on.

    VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve deepseek-ai/DeepSeek-V4-Flash -dp 4 -ep --kv-cache-dtype fp8 --port 8000

Options that do not shape the cache are left aside and named, so that nobody believes they were taken into account. The
dotted form (`--kv-transfer-config.kv_role kv_both`) is read as vLLM reads it: keys of one object.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decodebench.errors import UserError
from decodebench.planner.arguments import OBJECTS, OPTION_OF, OPTIONS, Option, read_option

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_GLUED = re.compile(r"(-[a-z]+)(\d+)")
_IMAGE = "/vllm-openai"
_SERVERS = ("vllm.entrypoints.openai.api_server",)


@dataclass(frozen=True, slots=True)
class PastedLine:
    """What the line says. `arguments` are fields of `EngineArguments`; `ignored` the names of the other options."""

    model: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def read_pasted(words: Sequence[str]) -> PastedLine:
    """Read `[NAME=value ...] [vllm serve | python -m ...api_server | docker run ... IMAGE] [MODEL] [options]`."""
    if not words:
        return PastedLine()
    from decodebench.engine.flags import Flag, parse_flags

    rest = list(words)
    env: dict[str, str] = {}
    while rest and _ASSIGNMENT.match(rest[0]):
        _set(env, rest.pop(0))
    rest = _after_image(rest, env) if rest[:1] in (["docker"], ["podman"]) else rest
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
            _refuse_glued(flag.name)
            ignored.append(flag.name)
        elif flag.key:
            _put(arguments, option, flag.key, flag.value)
            bare.extend(extra if "=" in rest[flag.start] else extra[1:])
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


def _refuse_glued(name: str) -> None:
    """`-tp2` is no option of vLLM; left aside it would be a plan for one rank."""
    glued = _GLUED.fullmatch(name)
    if glued and any(glued[1] in option.short for option in OPTIONS):
        raise UserError(f"{name}: vLLM has no such option", f"write it as {glued[1]} {glued[2]}")


def _put(arguments: dict[str, Any], option: Option, path: str, text: str | None) -> None:
    """Set one key of an object: `path` as in `kv_connector_extra_config.connectors`, the value JSON or text."""
    name = f"{option.name}.{path}"
    if option.field not in OBJECTS:
        raise UserError(f"{name}: {option.name} takes no keys", option.help)
    if text is None:
        raise UserError(f"{name} needs a value", option.help)
    whole = arguments.setdefault(option.field, {})
    if isinstance(whole, str):
        raise UserError(f"{name}: {option.name} is given as a whole object too", "write it one way")
    *parents, key = path.split(".")
    for parent in parents:
        whole = whole.setdefault(parent, {})
        if not isinstance(whole, dict):
            raise UserError(f"{name}: {parent} has a value of its own", "write the object as JSON")
    try:
        whole[key] = json.loads(text)
    except ValueError:
        whole[key] = text


def _set(env: dict[str, str], assignment: str) -> None:
    name, _, value = assignment.partition("=")
    env[name] = value


def _after_image(words: list[str], env: dict[str, str]) -> list[str]:
    """What a container line hands to vLLM: all behind vLLM's image, whose entry point is the server."""
    for at, word in enumerate(words):
        if _IMAGE in word:
            return words[at + 1 :]
        if words[at - 1] in ("-e", "--env") and _ASSIGNMENT.match(word):
            _set(env, word)
    raise UserError(
        f"the pasted {words[0]} line names no image of vLLM ({_IMAGE.strip('/')})",
        "paste what follows the image alone",
    )


def _after_command(words: list[str]) -> list[str]:
    """The words behind the command itself; a line of options alone is taken as it is."""
    for at, word in enumerate(words):
        if word.startswith("--"):
            break
        if word == "serve" or word in _SERVERS:
            return words[at + 1 :]
    return words
