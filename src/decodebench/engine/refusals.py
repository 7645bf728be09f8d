"""The vLLM options that a measurement cannot live with, each with its reason; and those that deserve a warning."""

import json
from collections.abc import Sequence

from decodebench.engine.flags import Flag
from decodebench.errors import UserError

_OTHER_RANKS = (
    "the ranks are reached through one server; this mode gives each its own",
    "use --data-parallel-size with vLLM's internal load balancing (the default)",
)

REFUSED: dict[str, tuple[str, str]] = {
    "--kv-transfer-config": (
        "decodebench sets it to load its own connector, which has to be the first to answer",
        "leave it out; --with-connector (before --) runs another connector beside ours",
    ),
    "--kv-offloading-size": (
        "it replaces the connector with vLLM's offloading one",
        "leave it out",
    ),
    "--config": (
        "options in a file cannot be checked against the measurement",
        "write the file's options behind `--`",
    ),
    "--model": ("the model is decodebench's own argument", "decodebench run MODEL -- ..."),
    "--headless": ("there would be no server to ask", "leave it out"),
    "--grpc": ("requests are sent over HTTP", "leave it out"),
    "--uds": ("the server is reached over loopback TCP", "leave it out"),
    "--root-path": ("the server is reached without a proxy", "leave it out"),
    "--ssl-keyfile": ("the server is reached over loopback without TLS", "leave the --ssl options out"),
    "--ssl-certfile": ("the server is reached over loopback without TLS", "leave the --ssl options out"),
    "--use-replayssm": ("vLLM refuses it together with a KV connector", "leave it out"),
    "--data-parallel-external-lb": _OTHER_RANKS,
    "--data-parallel-hybrid-lb": _OTHER_RANKS,
    "--data-parallel-multi-port-external-lb": _OTHER_RANKS,
    "--data-parallel-rank": _OTHER_RANKS,
    "--data-parallel-start-rank": _OTHER_RANKS,
}

REFUSED_ABOVE_ONE: dict[str, tuple[str, str]] = {
    "--pipeline-parallel-size": (
        "a cohort is one micro-batch there and every other pipeline slot would idle, so its steps are not the engine's",
        "measure with tensor, data or expert parallelism",
    ),
    "--decode-context-parallel-size": (
        "a block's token span is divided over ranks there, which the fill does not cover",
        "leave it out",
    ),
    "--prefill-context-parallel-size": ("nothing is prefilled", "leave it out"),
}

WARNED: dict[str, str] = {
    "--disable-hybrid-kv-cache-manager": (
        "the hybrid KV cache manager is off at your wish: sliding-window and chunked layers are kept as full attention"
    ),
    "--enable-sleep-mode": "a sleeping engine loses what was filled",
}

_SYNTHETIC = '"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5'


def check_flags(flags: Sequence[Flag]) -> tuple[str, ...]:
    """Raise `UserError` for the first option that breaks the measurement; returns warnings about the others."""
    for flag in flags:
        if flag.name in REFUSED:
            raise _refusal(flag.name, REFUSED[flag.name])
        if flag.name in REFUSED_ABOVE_ONE and flag.value != "1":
            raise _refusal(f"{flag.name} {flag.value or ''}".rstrip(), REFUSED_ABOVE_ONE[flag.name])
    _check_speculation([flag for flag in flags if flag.name.startswith(("--spec-", "--speculative-config"))])
    return tuple(f"{flag.name}: {WARNED[flag.name]}" for flag in flags if flag.name in WARNED)


def _refusal(what: str, why: tuple[str, str]) -> UserError:
    reason, next_step = why
    return UserError(f"{what} (after --): {reason}", next_step)


def _check_speculation(flags: Sequence[Flag]) -> None:
    """Speculative decoding needs vLLM's synthetic acceptance: what is accepted on made-up KV means nothing."""
    if not flags:
        return
    methods = [flag.value for flag in flags if flag.key == "rejection_sample_method"]
    for flag in flags:
        if flag.name == "--speculative-config" and not flag.key:
            methods.append(_config_of(flag).get("rejection_sample_method"))
    if "synthetic" not in methods:
        reason = "draft tokens would be accepted or not on made-up KV, which means nothing"
        raise _refusal(flags[0].name, (reason, f"add to its JSON how many vLLM shall accept: {_SYNTHETIC}"))


def _config_of(flag: Flag) -> dict[str, str]:
    try:
        config = json.loads(flag.value or "")
    except ValueError:
        raise UserError(f"{flag.name} {flag.value or ''}: not JSON") from None
    if not isinstance(config, dict):
        raise UserError(f"{flag.name} {flag.value}: not a JSON object")
    return {str(name).replace("-", "_"): value for name, value in config.items()}
