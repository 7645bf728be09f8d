"""`decodebench serve [MODEL] [options] [-- vLLM options]`: a server with our connector in it, until Ctrl-C.

decodebench serve                          # the built-in tiny model
decodebench serve --print MODEL -- -dp 4   # what would be started, as one shell command
"""

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path

from decodebench.engine.command import EngineCommand
from decodebench.engine.phases import Phase
from decodebench.engine.ports import free_port


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="start a vLLM server with the connector in it and keep it running",
        epilog="Everything after `--` goes to `vllm serve` unchanged.",
    )
    from decodebench.cli.engine_options import add_engine_options

    add_engine_options(parser)
    parser.add_argument(
        "--print", action="store_true", help="print the engine's command line and environment, start nothing"
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="the server's log (default: a new file in the temporary folder)",
    )


def run(args: argparse.Namespace) -> int:
    from decodebench.cli.engine_options import command_of
    from decodebench.engine.preflight import preflight

    command, _ = preflight(command_of(args))
    for warning in command.warnings:
        _say(f"warning: {warning}")
    if args.print:
        if not command.port:
            _say(
                "the port is one that is free now; without `-- --port` every start of `serve` chooses its own"
            )
        print(shell_command(command, command.port or free_port()))
        return 0
    _serve(command, args)
    return 0


def shell_command(command: EngineCommand, port: int) -> str:
    """The command as a shell takes it, environment first, secrets hidden."""
    from decodebench.engine.redact import Redactor, is_secret_name, secrets_in

    redactor = Redactor(secrets_in(command.args, command.env))
    variables = [
        f"{name}={'***' if is_secret_name(name) else shlex.quote(value)}"
        for name, value in command.env.items()
    ]
    line = command.server_spec(Path("server.log")).command(port)
    return " ".join([*variables, *(shlex.quote(arg) for arg in redactor.args(line))])


def measuring_command(url: str, command: EngineCommand) -> str:
    """What to type to measure this server."""
    return shlex.join(("decodebench", "run", "--url", url, command.served_model_name))


def _serve(command: EngineCommand, args: argparse.Namespace) -> None:
    from decodebench.engine.proof import prove_connector
    from decodebench.engine.server import Server

    log_path = args.log or Path(tempfile.mkdtemp(prefix="decodebench-")) / "server.log"
    _say(f"starting vLLM with {command.model}; its log: {log_path}")
    with Server(command.server_spec(log_path, args.startup_timeout)) as server:
        server.start(_say_phase)
        loaded = prove_connector(server.base_url, command.served_model_name, command.api_key)
        _say(
            f"the engine runs {loaded.name} {loaded.version}; its answers are meaningless text, do not expose it"
        )
        print(server.base_url, flush=True)
        _say(f"measure it: {measuring_command(server.base_url, command)}")
        _say("Ctrl-C stops it")
        while True:
            time.sleep(0.5)
            server.check()


def _say_phase(phase: Phase) -> None:
    _say(f"[{phase.seconds:6.1f} s] {phase.name}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
