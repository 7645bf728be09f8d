"""What a run would measure, as a table for a person (`decodebench run --dry-run`)."""

from typing import TYPE_CHECKING, TextIO

from rich.table import Table

from decodebench.report.terminal import console_for
from decodebench.report.units import count, duration

if TYPE_CHECKING:
    from decodebench.bench.forecast import Forecast, PointForecast

STEP_TIMES_MS = (5, 20, 100)
"""Step times for which the length of the run is given: nobody knows the real one before it is measured."""


def print_forecast(forecast: "Forecast", max_time_s: float | None, stream: TextIO) -> None:
    console = console_for(stream)
    console.print(f"Hybrid KV cache manager: {forecast.decision.verdict.value} ({forecast.decision.reason})")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("batch", "context", "prompt", "window", "steps a repeat", "blocks", "fits"):
        table.add_column(heading, justify="left" if heading == "fits" else "right")
    for point in forecast.points:
        table.add_row(*_cells(point))
    console.print(table)
    times = ", ".join(
        f"{duration(forecast.steps * step_ms / 1000)} at {step_ms} ms a step" for step_ms in STEP_TIMES_MS
    )
    console.print(
        f"{forecast.steps:,} steps to the first look at the precision: {times}; server starts not counted"
    )
    if max_time_s is not None:
        console.print(f"The run ends after {duration(max_time_s)} at the latest (--max-time)")
    for assumed in forecast.assumed:
        console.print(f"Assumed: {assumed}")


def _cells(point: "PointForecast") -> tuple[str, ...]:
    window = point.window
    needed = "-" if point.needed_blocks is None else f"{point.needed_blocks:,}"
    usable = "" if point.usable_blocks is None else f" of {point.usable_blocks:,}"
    verdict = {True: "yes", False: f"no: {point.reason}", None: f"not known: {point.reason}"}[point.fits]
    return (
        str(point.point.batch_size),
        count(point.point.context_len),
        "-" if window is None else f"{window.prompt_len:,}",
        "-" if window is None else str(window.length),
        "-" if window is None else str(window.max_tokens),
        needed + usable,
        verdict,
    )
