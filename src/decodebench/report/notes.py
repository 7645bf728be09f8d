"""What a reader must know before quoting a figure of a run: the lines under its table."""

from collections.abc import Iterator

from decodebench.report.units import count, percent
from decodebench.results.donors import DonorPhase
from decodebench.results.point import Point
from decodebench.results.provenance import Engine
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status


def notes(document: RunDocument) -> list[str]:
    """Engine, what the intervals cover, missed precision, content, noise, where it was saved."""
    lines = []
    if document.engine is not None:
        lines.append(engine_line(document.engine))
    lines += _interval(document.points)
    lines += _missed(document.points)
    lines += _content(document.points)
    lines += [
        f"{donor_line(phase)} How close to a real prefill: not measured (see `decodebench fidelity`)."
        for phase in document.donors
    ]
    if document.host.noise_warning:
        lines.append(f"Noise: {document.host.noise_warning}")
    if document.status is not RunStatus.FINISHED:
        reason = f" ({document.reason})" if document.reason else ""
        lines.append(f"The run did not finish: {document.status.value}{reason}.")
    lines.append(f"Saved in {document.out}")
    return lines


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
    missed = [point for point in points if point.precision_missed]
    if missed:
        reached = ", ".join(f"{_coordinates(point)} {_reached(point)}" for point in missed)
        asked = percent(missed[0].precision_asked or 0)
        yield f"* wider than +-{asked} asked: {reached}; more time or --max-repeats narrows it."


def _reached(point: Point) -> str:
    return "has no interval" if point.precision_reached is None else f"+-{percent(point.precision_reached)}"


def _content(points: tuple[Point, ...]) -> Iterator[str]:
    valid = [point for point in points if point.status in (Status.VALID, Status.UNVERIFIED)]
    for content in dict.fromkeys(point.content for point in valid):
        if content in ("constant", "normal"):
            yield (
                f"Content: {content} fill; made-up KV picks other experts and sparse indices than text does, so "
                "steps of MoE and sparse-attention models can take a different time than over real KV."
            )
        elif content != "donor":  # told with its donors
            yield f"Content: {content} fill."


def donor_line(phase: DonorPhase) -> str:
    """What the donors were and what they cost."""
    spread = "one a request" if phase.one_a_request else "pages mixed by request"
    return (
        f"Content: {phase.donors} donors of {phase.donor_len:,} tokens ({phase.source}), {spread}; prefilled before "
        f"launch {phase.launch + 1} in {phase.duration_ns / 1e9:.1f} s, {phase.bank_bytes / 2**20:,.0f} MiB of host "
        "memory a worker."
    )


def _coordinates(point: Point) -> str:
    return f"{point.batch_size} x {count(point.context_len)}"
