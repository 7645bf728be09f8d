"""The options that say which engine to start: shared by every verb that starts one."""

import argparse
from collections.abc import Mapping
from math import isfinite, nan

from decodebench.connector.config import DEFAULT_NUMBER
from decodebench.engine.command import EngineCommand, build_command
from decodebench.engine.composition import AFTER, BEFORE, Siblings
from decodebench.engine.server import STARTUP_TIMEOUT_S
from decodebench.errors import UserError

DEFAULT_MODEL = "tiny-gemma3"
NUMBERS = ("constant", "normal")
"""Fills by the server's own numbers."""


def add_engine_options(
    parser: argparse.ArgumentParser,
    fills: tuple[str, ...] = NUMBERS,
) -> None:
    """`fills`: what `--fill` takes, the default first; none: the verb chooses fills in its own way."""
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        metavar="MODEL",
        help="a model as vLLM takes it (name on the hub, or folder), or a built-in one (see `decodebench recipes`; "
        "default: %(default)s)",
    )
    if fills:
        _add_fill_options(parser, fills)
    else:
        parser.set_defaults(fill_mean=None, fill_std=None)
    parser.set_defaults(default_fill=next(iter(fills), None))
    parser.add_argument(
        AFTER,
        action="append",
        default=[],
        metavar="JSON",
        help="run another KV connector beside ours, in a MultiConnector: its transfer config, as in "
        '\'{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}\' (repeatable)',
    )
    parser.add_argument(
        BEFORE,
        action="append",
        default=[],
        metavar="JSON",
        help="the same, but asked before ours: where it has tokens of a request, it wins and the point is invalid",
    )
    parser.add_argument(
        "--startup-timeout",
        type=_seconds,
        default=STARTUP_TIMEOUT_S,
        metavar="S",
        help="give up when the server is not ready after so many seconds (default: %(default)g)",
    )


def _add_fill_options(parser: argparse.ArgumentParser, fills: tuple[str, ...]) -> None:
    pages = "donor copies pages of really prefilled prompts, " if "donor" in fills else ""
    parser.add_argument(
        "--fill",
        choices=fills,
        help=f"what is written into the KV cache: {pages}constant and normal write numbers (default: {fills[0]}; "
        "without it --fill-mean alone means constant, --fill-std normal)",
    )
    parser.add_argument(
        "--fill-mean", type=_number, metavar="X", help=f"mean of the fill (default: {DEFAULT_NUMBER})"
    )
    parser.add_argument(
        "--fill-std", type=_number, metavar="X", help=f"spread of a normal fill (default: {DEFAULT_NUMBER})"
    )


def content_of(args: argparse.Namespace) -> str:
    """What fills the pages: what was asked for; numbers where only those were given; else the verb's default."""
    if args.fill is not None:
        return str(args.fill)
    if args.fill_std:
        return "normal"
    if (args.fill_mean, args.fill_std) != (None, None):
        return "constant"
    return str(args.default_fill)


def connector_config_of(args: argparse.Namespace) -> Mapping[str, object]:
    """The connector's settings (`kv_connector_extra_config`) that the fill options ask for."""
    content = content_of(args)
    if content == "donor" and (args.fill_mean, args.fill_std) != (None, None):
        raise UserError(
            "--fill-mean and --fill-std are of a fill by numbers, not of --fill donor",
            "leave them out, or leave out --fill donor",
        )
    if content == "constant" and args.fill_std:
        raise UserError(f"--fill-std {args.fill_std:g}: a constant fill has no spread", "use --fill normal")
    if args.fill_std is not None and args.fill_std < 0:
        raise UserError(
            f"--fill-std {args.fill_std:g}: must not be negative", f"write {DEFAULT_NUMBER}, or leave it out"
        )
    if content == "normal" and args.fill_std == 0:
        raise UserError("--fill-std 0: a normal fill without spread is a constant one", "use --fill constant")
    std = 0.0 if content != "normal" else (args.fill_std or DEFAULT_NUMBER)
    return {"fill_mean": DEFAULT_NUMBER if args.fill_mean is None else args.fill_mean, "fill_std": std}


def check_engine(args: argparse.Namespace) -> None:
    """Raises `UserError` for a MODEL, siblings or options of vLLM that are wrong; makes and starts nothing."""
    from decodebench.engine.models import check_name

    Siblings.read(args.with_connector_first, args.with_connector)
    build_command(args.model, args.engine_args)
    check_name(args.model)


def command_of(args: argparse.Namespace) -> EngineCommand:
    """The engine that the options ask for; a built-in model is made on the spot."""
    from decodebench.engine.models import resolve_model

    config = connector_config_of(args)
    check_engine(args)  # before the files of a built-in model are made
    siblings = Siblings.read(args.with_connector_first, args.with_connector)
    model = resolve_model(args.model)
    return build_command(
        model.path,
        args.engine_args,
        config,
        recipe_args=model.vllm_args,
        env=model.env,
        siblings=siblings,
    )


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
