"""From a model and the user's own vLLM options to the server that is started, with our connector in it.

Everything after `--` on our command line reaches `vllm serve` unchanged, with three exceptions: what names the address
(`--host`, `--port`) is ours, what would break the measurement is refused by name (`engine/refusals.py`), and
`--kv-transfer-config` is added (around ours and its siblings: `engine/composition.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from decodebench.engine.composition import ALONE, OUR_NAME, Siblings
from decodebench.engine.flags import Flag, parse_flags
from decodebench.engine.loopback import LOOPBACK
from decodebench.engine.refusals import check_flags
from decodebench.engine.server import STARTUP_TIMEOUT_S, ServerSpec
from decodebench.errors import UserError

CONNECTOR_NAME = OUR_NAME
CONNECTOR_MODULE = "decodebench.connector"
CONNECTOR_CLASS = "decodebench.connector.connector.DecodeBenchConnector"

_LOOPBACK_NAMES = (LOOPBACK, "localhost")


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """A checked command line for the engine. `args` follows the model; host and port are not among them."""

    model: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    warnings: tuple[str, ...] = ()
    served_model_name: str = ""
    api_key: str | None = field(default=None, repr=False)
    siblings: Siblings = ALONE

    def server_spec(self, log_path: Path, startup_timeout_s: float = STARTUP_TIMEOUT_S) -> ServerSpec:
        return ServerSpec(
            model=self.model,
            args=self.args,
            env=self.env,
            port=self.port,
            startup_timeout_s=startup_timeout_s,
            log_path=log_path,
        )


def build_command(
    model: str,
    engine_args: tuple[str, ...] = (),
    connector_config: Mapping[str, object] | None = None,
    recipe_args: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    siblings: Siblings = ALONE,
) -> EngineCommand:
    """Check the user's `engine_args` and put the command together: recipe, then user, then our connector.

    vLLM takes the last of two equal options, so the user's win over the recipe's. Raises `UserError` for an option
    that would break the measurement.
    """
    if engine_args and not engine_args[0].startswith("-"):
        raise UserError(
            f"{engine_args[0]} (after --): no option of vLLM",
            "MODEL goes before `--`, vLLM's options behind it",
        )
    flags = list(parse_flags(engine_args))
    warnings = check_flags(flags)
    by_name = {flag.name: flag for flag in flags}
    named = {flag.name: flag for flag in parse_flags(recipe_args)} | by_name
    ours = {"--host", "--port"}
    kept = [
        arg
        for at, arg in enumerate(engine_args)
        if not any(_covers(flag, at) for flag in flags if flag.name in ours)
    ]
    return EngineCommand(
        model=model,
        args=(*recipe_args, *kept, "--kv-transfer-config", transfer_config(connector_config or {}, siblings)),
        env=dict(env or {}),
        port=_port(by_name.get("--port")),
        warnings=(*warnings, *siblings.warnings, *_host_warning(by_name.get("--host"))),
        served_model_name=_value(named.get("--served-model-name")) or model,
        api_key=_value(by_name.get("--api-key")),
        siblings=siblings,
    )


def transfer_config(connector_config: Mapping[str, object], siblings: Siblings = ALONE) -> str:
    """The value of `--kv-transfer-config` that loads our connector with these settings, beside its siblings."""
    settings = dict(connector_config) | ({"connectors": list(siblings.names)} if siblings else {})
    ours = {
        "kv_connector": CONNECTOR_NAME,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_connector_extra_config": settings,
    }
    return json.dumps(siblings.around(ours))


def _covers(flag: Flag, at: int) -> bool:
    return flag.start <= at < flag.end


def _value(flag: Flag | None) -> str | None:
    return flag.value if flag is not None else None


def _port(flag: Flag | None) -> int:
    if flag is None:
        return 0
    if flag.value is None or not flag.value.isdigit():
        raise UserError(f"--port {flag.value or ''}: not a port", "write 1 to 65535, or 0 for a free one")
    return int(flag.value)


def _host_warning(flag: Flag | None) -> tuple[str, ...]:
    if flag is None or flag.value in _LOOPBACK_NAMES:
        return ()
    raise UserError(
        f"--host {flag.value}: a server with our connector answers with meaningless text: {LOOPBACK} only",
        "leave --host out; to reach it from another machine, tunnel the port (ssh -L)",
    )
