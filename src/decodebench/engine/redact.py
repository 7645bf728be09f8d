"""Keep secrets out of everything that is printed or stored.

A secret is known by the name it travels under: environment variables `*_TOKEN`, `*_KEY`, `*_SECRET`, `*_PASSWORD`,
the same words as option or JSON key, and the user part of a URL. A `Redactor` also knows the values themselves, so a
secret that reaches the log in an unforeseen spelling is still removed.

>>> Redactor().text("--api-key abc https://me:pw@host/x")
'--api-key *** https://***@host/x'
"""

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_SHORTEST = 6  # a shorter value is hidden by its name only: replacing it everywhere would garble the text

_SECRET_WORD = r"(?:[A-Za-z0-9_-]*[_-])?(?:token|key|secret|password)"
_SECRET_NAME = re.compile(rf"^(?:--?)?{_SECRET_WORD}$", re.IGNORECASE)
_VOCABULARY = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|image|audio|video|per|output)[_-]token$", re.I
)

_URL_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
_OPTION = re.compile(rf"(?<!\S)(--{_SECRET_WORD})(=|\s+)(?!-)(\"[^\"]*\"|'[^']*'|\S+)", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(['\"]?\b)([A-Za-z0-9_-]*[_-](?:token|key|secret|password))(\b['\"]?\s*[=:]\s*)"
    r"(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,;)}\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]+", re.IGNORECASE)

RECORDED_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TRITON_INTERPRET",
)
"""Environment variables that are kept in results beside `VLLM_*` and `NCCL_*`; every other one stays out."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or JSON key of this name holds a secret."""
    return bool(_SECRET_NAME.match(name)) and not _VOCABULARY.search(name)


def _hide_assigned(match: re.Match[str]) -> str:
    opening, name, equals, _ = match.groups()
    return f"{opening}{name}{equals}{HIDDEN}" if is_secret_name(name) else match.group()


class Redactor:
    """Removes secrets from text: those it recognises by name, and the values it was told."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret which contains another one leaves no remainder.
        self._secrets = tuple(sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        text = _URL_USER.sub(rf"\1{HIDDEN}@", text)
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
        text = _OPTION.sub(rf"\1\2{HIDDEN}", text)
        return _ASSIGNED.sub(_hide_assigned, text)

    def args(self, args: Iterable[str]) -> tuple[str, ...]:
        """The same command line with the values of secret options hidden."""
        shown: list[str] = []
        hide_next = False
        for arg in args:
            option, equals, _ = arg.partition("=")
            if hide_next and not arg.startswith("-"):
                shown.append(HIDDEN)  # one option may take several values (`--api-key A B`)
                continue
            hide_next = option.startswith("-") and not equals and is_secret_name(option)
            if option.startswith("-") and equals and is_secret_name(option):
                shown.append(f"{option}={HIDDEN}")
            else:
                shown.append(self.text(arg))
        return tuple(shown)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The recorded part of an environment (an allow-list), its secrets hidden, sorted by name."""
        return {
            name: HIDDEN if is_secret_name(name) else self.text(value)
            for name, value in sorted(environ.items())
            if name in RECORDED_ENVIRONMENT or name.startswith(("VLLM_", "NCCL_"))
        }


def secrets_in(args: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values of a command line and an environment, for a `Redactor`."""
    found = [value for name, value in environ.items() if is_secret_name(name)]
    collecting = False
    for arg in args:
        option, equals, value = arg.partition("=")
        if arg.startswith("-"):
            collecting = is_secret_name(option) and not equals
            if equals and is_secret_name(option):
                found.append(value)
        elif collecting:
            found.append(arg)
    return tuple(found)
