"""The result of `decodebench fidelity` as a table: one line a fill and point, and what to know before quoting one."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decodebench.report.content import NOT_MEASURED, donor_line, error_with_interval
from decodebench.report.notes import engine_line
from decodebench.report.units import Formatter, count, percent, time_formatter
from decodebench.results.fidelity import Arm, Comparison, FidelityDocument, FidelityPoint
from decodebench.results.metrics import FEWEST_FOR_INTERVAL

_TITLES = (
    "batch",
    "context",
    "fill",
    "error",
    "95 % interval",
    "error of\nmeans",
    "distinct\ntokens",
    "of real\nprefill",
)
_EXPERTS = ("distinct\nexperts", "of real\nprefill")


def print_fidelity(document: FidelityDocument, console: Console) -> None:
    """The table and its notes."""
    compared = [each for point in document.points for each in point.comparisons]
    arms = [arm for each in compared for arm in (each.real, each.filled) if arm is not None]
    time = time_formatter([arm.step_time_ns for arm in arms])
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    experts = _EXPERTS if any(arm.distinct_experts is not None for arm in arms) else ()
    titles = (*_TITLES, *experts, "draws", "rounds", f"step ({time.unit})\nreal", "\nfilled")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("\nnote", overflow="fold")
    for point in document.points:
        for each in point.comparisons:
            table.add_row(*_cells(point, each, time, with_experts=bool(experts)), _note(each))
        if not point.comparisons:
            empty = ["-"] * (len(titles) - 4)
            table.add_row(
                str(point.batch_size), count(point.context_len), "-", NOT_MEASURED, *empty, point.reason or ""
            )
    console.print(table)
    for line in _notes(document, compared):
        console.print(Text(line))


def _cells(point: FidelityPoint, each: Comparison, time: Formatter, *, with_experts: bool) -> list[str]:
    quoted = each.quoted
    return [
        str(point.batch_size),
        count(point.context_len),
        each.fill,
        NOT_MEASURED if quoted.error is None else f"{quoted.error:+.1%}",
        "-" if quoted.low is None or quoted.high is None else f"{quoted.low:+.1%} to {quoted.high:+.1%}",
        "-" if each.at_equal_speed is None else error_with_interval(each),
        _distinct(each.filled),
        _distinct(each.real),
        *([_experts(each.filled), _experts(each.real)] if with_experts else []),
        "-" if each.at_equal_speed is None else str(each.at_equal_speed.draws),
        str(each.rounds if each.at_equal_speed is None else each.at_equal_speed.rounds),
        "-" if each.real is None else time(each.real.step_time_ns),
        "-" if each.filled is None else time(each.filled.step_time_ns),
    ]


def _note(each: Comparison) -> str:
    if each.reason is None or each.quoted.error is None:
        return each.reason or ""
    of = "" if each.at_equal_speed is None else " of the means"
    return f"{each.spoiled} of {each.spoiled + each.rounds} rounds left out{of}: {each.reason}"


def _distinct(arm: Arm | None) -> str:
    return "-" if arm is None else f"{arm.distinct_tokens:.1f}"


def _experts(arm: Arm | None) -> str:
    return "-" if arm is None or arm.distinct_experts is None else f"{arm.distinct_experts:.1f}"


def _notes(document: FidelityDocument, compared: list[Comparison]) -> list[str]:
    lines = [engine_line(document.engine)] if document.engine is not None else []
    lines.append(
        "Error: step time over filled KV / over really prefilled KV - 1, cohorts of both in turns on one server; "
        "it holds at its point only."
    )
    if any(each.at_equal_speed is not None for each in compared):
        lines.append(
            "It is that at equal speed of the machine; beside it that of the means, which carry every change of speed."
        )
    widths = [each.quoted.half_width for each in compared]
    wide = [width for width in widths if width is not None and width > document.precision_asked]
    if wide:
        lines.append(
            f"{len(wide)} of {len(compared)} intervals are wider than +-{percent(document.precision_asked)}."
        )
    few = [each for each in compared if each.quoted.error is not None and each.quoted.low is None]
    if few:
        lines.append(
            f"{len(few)} of {len(compared)} errors have no interval: it takes {FEWEST_FOR_INTERVAL} draws of prompts "
            "or more, that agree."
        )
    lines += [donor_line(phase) for phase in document.donors]
    if document.host.noise_warning:
        lines.append(f"Noise: {document.host.noise_warning}")
    return [*lines, f"Saved in {document.out}"]
