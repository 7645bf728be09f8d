"""The result of a run as a table for a person: every point of the grid, whatever became of it, and what to
know before a figure is quoted.

A narrow terminal loses the less important columns first, a very narrow one gets a line per figure; output that is
not a terminal is never folded.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decodebench.report.content import error_with_interval
from decodebench.report.notes import notes
from decodebench.report.units import Formatter, count, number_formatter, time_formatter
from decodebench.results.metrics import METRICS
from decodebench.results.point import Point
from decodebench.results.schema import RunDocument
from decodebench.results.status import Status

NOTHING = "-"
_UNFOLDED = 10_000  # columns, for output that no window limits
_GAP = 2  # between two columns: one of padding, one of the box's divider
_STATUS_WIDTH = 16  # what the last column gets before others are dropped for it
_STYLES = {Status.VALID: "green", Status.NOT_RUN: "dim", Status.UNVERIFIED: "yellow"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; those of a higher `rank` go first when the terminal is too narrow, rank 0 never."""

    title: str
    cell: Callable[[Point], str]
    rank: int = 0


def console_for(stream: TextIO) -> Console:
    """Colours and the window's width in a terminal; plain unfolded text elsewhere."""
    if stream.isatty() or os.environ.get("COLUMNS"):
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_UNFOLDED, color_system=None)


def print_report(
    document: RunDocument, console: Console, *, is_running: bool = False, with_cause: bool = True
) -> None:
    """The table and its notes (`notes.py` says what the switches do)."""
    if document.points:
        console.print(_fitting(document, console.width))
    for note in notes(document, is_running=is_running, with_cause=with_cause):
        console.print(Text(note))


def _fitting(document: RunDocument, width: int) -> Table | Text:
    columns = _columns(document)
    while _width(columns, document.points) > width:
        rank = max(column.rank for column in columns)
        if rank == 0:
            return _stacked(_columns(document), document.points)
        columns = [column for column in columns if column.rank != rank]
    return _table(columns, document.points)


def _width(columns: list[Column], points: tuple[Point, ...]) -> int:
    """Characters that the table takes before a status is folded."""
    status = min(max(len(_status(point)) for point in points), _STATUS_WIDTH)
    return sum(_GAP + max(map(len, _cells(column, points))) for column in columns) + status


def _cells(column: Column, points: tuple[Point, ...]) -> list[str]:
    return [*column.title.split("\n"), *map(column.cell, points)]


def _stacked(columns: list[Column], points: tuple[Point, ...]) -> Text:
    lines = []
    for point in points:
        cells = ((column.title.replace("\n", " "), column.cell(point)) for column in columns)
        lines += [Text(f"{title}: {cell}") for title, cell in cells if cell != NOTHING]
        lines += [_status(point), Text()]
    return Text("\n").join(lines)


def _table(columns: list[Column], points: tuple[Point, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        table.add_column(Text(_two_lines(column.title)), justify="right", no_wrap=True)
    table.add_column(_two_lines("status"), overflow="fold")
    for point in points:
        table.add_row(*(Text(column.cell(point)) for column in columns), _status(point))
    return table


def _two_lines(title: str) -> str:
    """Titles of one line stand on the second, next to the rule below them."""
    return title if "\n" in title else f"\n{title}"


def _columns(document: RunDocument) -> list[Column]:
    points, engine = document.points, document.engine
    several_ranks = any(point.batch_size_total != point.batch_size for point in points)
    several_devices = engine is not None and len(engine.devices) > 1
    time = time_formatter([point.step_time_ns.mean for point in points if point.step_time_ns])
    columns = [
        Column("batch\nper rank" if several_ranks else "batch", lambda point: str(point.batch_size)),
        Column("batch\nin total", lambda point: str(point.batch_size_total)) if several_ranks else None,
        Column("context", lambda point: count(point.context_len)),
        _figure("measured_context", points, rank=3),
        _time("step_time_ns.mean", time),
        Column(f"95 % interval\n({time.unit})", lambda point: _interval(point, time), rank=1),
        _time("step_time_ns.p99", time, rank=4),
        _figure("output_tokens_per_s_per_request", points),
        _figure("output_tokens_per_s", points),
        _figure("output_tokens_per_s_per_device", points, rank=2) if several_devices else None,
        Column("repeats", lambda point: str(point.repeats), rank=2),
        Column(
            "error against\nreal prefill",
            lambda point: error_with_interval(point.fidelity and point.fidelity.quoted),
            rank=1,
        )
        if document.settings.fidelity
        else None,
    ]
    return [column for column in columns if column is not None]


def _figure(name: str, points: tuple[Point, ...], rank: int = 0) -> Column:
    known = [value for point in points if (value := point.figure(name)) is not None]
    return _column(name, METRICS[name].title.replace(" ", "\n", 1), number_formatter(known), rank)


def _time(name: str, formatter: Formatter, rank: int = 0) -> Column:
    return _column(name, f"{METRICS[name].title}\n({formatter.unit})", formatter, rank)


def _column(name: str, title: str, formatter: Formatter, rank: int) -> Column:
    def cell(point: Point) -> str:
        value = point.figure(name)
        return NOTHING if value is None else formatter(value)

    return Column(title, cell, rank)


def _interval(point: Point, formatter: Formatter) -> str:
    time = point.step_time_ns
    if time is None or time.low is None or time.high is None:
        return NOTHING
    mark = "*" if point.precision_missed else ""
    return f"{formatter(time.low)} to {formatter(time.high)}{mark}"


def _status(point: Point) -> Text:
    words = point.status.value.replace("_", " ")
    return Text(f"{words}: {point.reason}" if point.reason else words, _STYLES.get(point.status, "red"))
