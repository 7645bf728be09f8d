"""What `decodebench fidelity` does with its arguments."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from decodebench.bench.fidelity_runner import FidelityRunner, FidelitySettings, ServerPlan
from decodebench.bench.host import describe_host
from decodebench.bench.launches import started
from decodebench.bench.stopping import FIRST_LOOK
from decodebench.cli.donor_options import named_donor_options, read_donors
from decodebench.cli.engine_options import check_engine, command_of
from decodebench.cli.fidelity import FILLS
from decodebench.cli.measure_options import read_measured, require_at_least
from decodebench.connector.params import MAX_DONORS
from decodebench.engine.preflight import preflight
from decodebench.engine.recipes import names as recipe_names
from decodebench.engine.redact import Redactor, secrets_in
from decodebench.errors import EXIT_NO_VALID_POINT, EXIT_OK, UserError
from decodebench.report.fidelity import print_fidelity
from decodebench.report.progress import Moment, Progress
from decodebench.report.terminal import console_for
from decodebench.results.fidelity import FidelityDocument
from decodebench.results.files import replacing
from decodebench.results.rounds import FILE as ROUNDS
from decodebench.results.rounds import append
from decodebench.results.store import default_directory

ALL = "all"


@dataclass(frozen=True, slots=True)
class FidelityRequest:
    args: argparse.Namespace
    settings: FidelitySettings
    fills: tuple[str, ...]
    out: Path


def read(args: argparse.Namespace) -> FidelityRequest:
    """Raises `UserError` for whatever is wrong with the arguments."""
    fills = tuple(dict.fromkeys(args.fills.split(",")))
    for fill in fills:
        if fill not in FILLS:
            raise UserError(f"--fills {fill!r}: no such fill", f"choose from {', '.join(FILLS)}")
    check_engine(args)
    measured = read_measured(args)
    require_at_least("--max-draws", args.max_draws, FIRST_LOOK)
    require_at_least("--passes", args.passes, 1)
    if "donor" not in fills and (named := named_donor_options(args)):
        raise UserError(f"{named}: no fill from donors is compared", "add donor to --fills")
    assert measured.max_time_s is not None, "--max-time has a default"
    settings = FidelitySettings(
        points=measured.points,
        precision=measured.precision,
        max_draws=args.max_draws,
        passes=args.passes,
        max_time_s=measured.max_time_s,
        seed=measured.seed,
        window_steps=measured.window_steps,
        donors=read_donors(args, None, halved=True),
        donor_counts=_donor_counts(args.donors),
    )
    return FidelityRequest(args, settings, fills, args.out or default_directory(f"{args.model}-fidelity"))


def compare(request: FidelityRequest) -> int:
    """Measure and print. Whatever ends it, finished rounds are kept and shown; 4 if nothing could be compared."""
    request.out.mkdir(parents=True, exist_ok=True)
    file = request.out / "fidelity.json"
    if file.exists() or (request.out / ROUNDS).exists():
        raise UserError(f"--out {request.out}: holds a result already", "choose another directory")

    def keep(document: FidelityDocument) -> None:
        with replacing(file) as temporary:
            temporary.write_text(document.to_json() + "\n", encoding="utf-8")

    with ExitStack() as stack:
        progress = stack.enter_context(Progress(sys.stderr))
        servers = tuple(_servers(request, progress))
        progress.note(f"results go to {request.out}")
        progress.show(Moment("measuring the noise of this machine"))
        keep_round = partial(append, request.out)
        runner = FidelityRunner(request.settings, _document(request), progress, keep, keep_round)
        try:
            runner.run(servers)
        finally:
            stack.close()
            finished = runner.document.model_copy(update={"finished": datetime.now(UTC)})
            keep(finished)
            print_fidelity(finished, console_for(sys.stdout))
            if request.args.json:
                print(finished.to_json(indent=None), flush=True)
    compared = any(each.quoted.error is not None for point in finished.points for each in point.comparisons)
    return EXIT_OK if compared else EXIT_NO_VALID_POINT


def _document(request: FidelityRequest) -> FidelityDocument:
    """The document before anything is measured; takes the time of the noise test."""
    return FidelityDocument(
        schema="decodebench.fidelity/1",
        out=str(request.out),
        started=datetime.now(UTC),
        command=Redactor(secrets_in(request.args.argv, {})).args(request.args.argv),
        seed=request.settings.seed,
        window_steps=request.settings.window_steps,
        precision_asked=request.settings.precision,
        passes=request.settings.passes,
        host=describe_host(),
    )


def _servers(request: FidelityRequest, progress: Progress) -> Iterator[ServerPlan]:
    """One server for each fill by numbers, which a server is started with; donors go with the first."""
    numbers: list[str | None] = [fill for fill in request.fills if fill != "donor"]
    args = request.args
    recipe = args.model if args.model in recipe_names() else None
    for number, fill in enumerate(numbers or [None]):
        server = argparse.Namespace(**vars(args) | {"fill": fill or "constant"})
        command, decision = preflight(command_of(server))
        for warning in command.warnings if number == 0 else ():
            progress.note(f"warning: {warning}")
        log = request.out / f"server-{number}.log"
        launch = started(command, log, args.startup_timeout, recipe, decision.reason if decision else None)
        yield ServerPlan(launch, fill, "donor" in request.fills and number == 0)


def _donor_counts(text: str | None) -> tuple[int | None, ...]:
    counts: list[int | None] = []
    for word in (text or ALL).split(","):
        if word == ALL:
            counts.append(None)
        elif word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_DONORS:
            counts.append(int(word))
        else:
            raise UserError(
                f"--donors {word!r}: not a number of donors", f"write 1 to {MAX_DONORS}, or `{ALL}`"
            )
    return tuple(dict.fromkeys(counts))
