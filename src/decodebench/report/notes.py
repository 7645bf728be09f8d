"""What a reader must know before quoting a figure of a run: the lines under its table."""

import shlex
from collections.abc import Iterator

from decodebench.report.content import content_lines, coordinates
from decodebench.report.units import percent
from decodebench.results.metrics import FEWEST_FOR_INTERVAL
from decodebench.results.point import Point
from decodebench.results.provenance import Engine
from decodebench.results.schema import RunDocument, RunStatus


def notes(document: RunDocument, *, is_running: bool = False, with_cause: bool = True) -> list[str]:
    """Engine, what the intervals cover, missed precision, content and its proofs, noise, how it ended, where it is.

    `is_running`: the process that measures it is still there. `with_cause`: why the engine failed, in its own words.
    """
    lines = []
    if document.engine is not None:
        lines.append(engine_line(document.engine))
    lines += _interval(document.points)
    lines += _missed(document.points)
    lines += _without_interval(document.points)
    lines += content_lines(document)
    if document.host.noise_warning:
        lines.append(f"Noise: {document.host.noise_warning}")
    lines += _ending(document, is_running, with_cause)
    lines.append(f"Saved in {document.out}")
    return lines


def _ending(document: RunDocument, is_running: bool, with_cause: bool) -> Iterator[str]:
    """How a run ended that did not finish, and the next step where something of it was kept."""
    status = document.status
    if status is RunStatus.FINISHED:
        return
    if status is RunStatus.RUNNING and is_running:
        yield "The run has not finished yet: its process is measuring."
        return
    if status is RunStatus.RUNNING:
        yield "The run did not finish: its process ended before it could."
    else:
        reason = f" ({document.reason})" if document.reason and document.reason != status.value else ""
        yield f"The run did not finish: {status.value}{reason}."
        yield from (f"  {line}" for line in (document.cause or "").splitlines() if with_cause)
    if any(point.repeat_details for point in document.points):
        yield f"go on with: decodebench run --resume {shlex.quote(document.out)}"


def engine_line(engine: Engine) -> str:
    """One line that says what was measured."""
    parts = [f"Measured: {engine.recipe or engine.model}"]
    if engine.weights:
        parts.append(f"{engine.weights} weights")
    if engine.vllm_version:
        parts.append(f"vLLM {engine.vllm_version}")
    if engine.devices:
        parts.append(_devices(engine.devices))
    if engine.groups:
        parts.append(f"{len(engine.groups)} KV cache group{'s' * (len(engine.groups) > 1)}")
    if engine.hma is not None:
        parts.append(f"hybrid KV cache manager {'on' if engine.hma else 'off'}")
    if len(engine.connectors) > 1:
        parts.append(f"KV connectors, asked in this order: {' then '.join(engine.connectors)}")
    if engine.shims:
        parts.append(f"CPU shims: {', '.join(engine.shims)}")
    return ", ".join(parts)


def _devices(devices: tuple[str, ...]) -> str:
    names = dict.fromkeys(devices)
    return " + ".join(f"{devices.count(name)} x {name}" for name in names)


def _interval(points: tuple[Point, ...]) -> Iterator[str]:
    scopes = {point.interval or "" for point in points}
    for scope in sorted(each for each in scopes if each.startswith("within")):
        yield f"Intervals: {scope}; another start of the server may differ by more (--launches 3 and more tell)."


def _missed(points: tuple[Point, ...]) -> Iterator[str]:
    missed = [
        (point, point.precision_reached)
        for point in points
        if point.precision_missed and point.precision_reached is not None
    ]
    if missed:
        reached = ", ".join(f"{coordinates(point)} +-{percent(width)}" for point, width in missed)
        asked = percent(missed[0][0].precision_asked or 0)
        yield f"* wider than +-{asked} asked: {reached}; more time or --max-repeats narrows it."


def _without_interval(points: tuple[Point, ...]) -> Iterator[str]:
    without = [point for point in points if point.step_time_ns is not None and point.step_time_ns.low is None]
    if without:
        where = ", ".join(f"{coordinates(point)} ({point.repeats})" for point in without)
        yield f"Too few repeats for an interval, which takes {FEWEST_FOR_INTERVAL} or more: {where}."
