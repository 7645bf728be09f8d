"""The options that say which engine to start: shared by every verb that starts one."""

import argparse
from collections.abc import Mapping
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING

from decodebench.connector.params import MAX_DONORS
from decodebench.engine.command import EngineCommand, build_command
from decodebench.engine.composition import AFTER, BEFORE, Siblings
from decodebench.engine.server import STARTUP_TIMEOUT_S
from decodebench.errors import UserError

if TYPE_CHECKING:
    from decodebench.bench.donors import DonorOptions

DEFAULT_MODEL = "tiny-gemma3"


def add_engine_options(
    parser: argparse.ArgumentParser,
    fills: tuple[str, ...] = ("constant", "normal"),
    with_fill: bool = True,
) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        metavar="MODEL",
        help="a model as vLLM takes it (name on the hub, or folder), or a built-in one (see `decodebench recipes`; "
        "default: %(default)s)",
    )
    if with_fill:
        _add_fill_options(parser, fills)
    else:
        parser.set_defaults(fill_mean=None, fill_std=None)
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
    parser.add_argument(
        "--fill",
        choices=fills,
        default="constant",
        help="what is written into the KV cache (default: %(default)s)",
    )
    parser.add_argument("--fill-mean", type=_number, metavar="X", help="mean of the fill (default: 0.015)")
    parser.add_argument(
        "--fill-std", type=_number, metavar="X", help="spread of a normal fill (default: 0.015)"
    )


def add_donor_options(parser: argparse.ArgumentParser) -> None:
    donors = parser.add_argument_group("donors: really prefilled prompts whose KV pages fill the requests")
    donors.add_argument(
        "--donors",
        type=int,
        metavar="N",
        help="how many, per data-parallel rank (default: one for every request of the largest batch, as far as the "
        "workers' bank holds them)",
    )
    donors.add_argument(
        "--donor-len",
        type=int,
        metavar="N",
        help="tokens of each (default: 2048, more where a window needs it)",
    )
    donors.add_argument(
        "--donor-text",
        type=Path,
        metavar="FILE",
        help="text that they read (default: random ids for random weights, a text set of ours for real ones)",
    )


def donor_options_of(args: argparse.Namespace) -> "DonorOptions | None":
    """What was asked of the donors; None without a donor fill."""
    from decodebench.bench.donor_prompts import Text
    from decodebench.bench.donors import DonorOptions

    given = {"--donors": args.donors, "--donor-len": args.donor_len, "--donor-text": args.donor_text}
    named = [option for option, value in given.items() if value is not None]
    if args.fill != "donor":
        if named:
            raise UserError(f"{', '.join(named)}: the fill is {args.fill}", "add --fill donor")
        return None
    if args.donors is not None and not 1 <= args.donors <= MAX_DONORS:
        raise UserError(f"--donors {args.donors}: must be 1 to {MAX_DONORS}")
    if args.donor_len is not None and args.donor_len < 2:
        raise UserError(f"--donor-len {args.donor_len}: must be at least 2")
    text = Text.read(args.donor_text) if args.donor_text is not None else None
    return DonorOptions(args.donors, args.donor_len, text)


def connector_config_of(args: argparse.Namespace) -> Mapping[str, object]:
    """The connector's settings (`kv_connector_extra_config`) that the fill options ask for."""
    if args.fill == "donor" and (args.fill_mean, args.fill_std) != (None, None):
        raise UserError(
            "--fill-mean and --fill-std are of a made-up fill", "leave them out with --fill donor"
        )
    if args.fill == "constant" and args.fill_std:
        raise UserError(f"--fill-std {args.fill_std:g}: a constant fill has no spread", "add --fill normal")
    if args.fill_std is not None and args.fill_std < 0:
        raise UserError(f"--fill-std {args.fill_std:g}: must not be negative")
    std = 0.0 if args.fill != "normal" else (args.fill_std or 0.015)
    return {"fill_mean": 0.015 if args.fill_mean is None else args.fill_mean, "fill_std": std}


def command_of(args: argparse.Namespace) -> EngineCommand:
    """The engine that the options ask for; a built-in model is made on the spot."""
    from decodebench.engine.models import resolve_model

    config = connector_config_of(args)
    siblings = Siblings.read(args.with_connector_first, args.with_connector)
    build_command(args.model, args.engine_args, config)  # wrong input is told before any file is made
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
