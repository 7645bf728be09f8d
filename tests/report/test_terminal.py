import io
from pathlib import Path

import pytest
from rich.console import Console

from decodebench.report.terminal import console_for, print_report
from decodebench.results.point import Point
from decodebench.results.provenance import Host
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from tests.results.documents import document, finished_run, other_point, valid_point


def shown(run: RunDocument, width: int | None = None) -> str:
    stream = io.StringIO()
    print_report(run, console_for(stream) if width is None else Console(file=stream, width=width))
    return stream.getvalue()


def row(text: str, *cells: str) -> str:
    """The line of the table that begins with these cells."""
    lines = [line for line in text.splitlines() if line.split()[: len(cells)] == list(cells)]
    assert len(lines) == 1, text
    return lines[0]


def test_every_point_is_shown_with_its_status_and_reason(tmp_path: Path) -> None:
    text = shown(finished_run(tmp_path / "run"))
    assert row(text, "2", "1k").rstrip().endswith("valid")
    for words in ("does not fit: needs 4128 of 2000 blocks", "not run: the time budget of 300 s was used up"):
        assert [line for line in text.splitlines() if line.split()[:2] == ["64", "4K"] and words in line]
    assert f"Saved in {tmp_path / 'run'}" in text


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.VALID])
def test_a_point_that_is_not_valid_shows_no_figure(status: Status) -> None:
    line = row(shown(document("out", other_point(0, status, "because"))), "64", "4K")
    assert line.split()[2:8] == ["-"] * 6


def test_step_time_interval_and_rates_are_those_of_the_document() -> None:
    point = valid_point(0, 2)
    time = point.step_time_ns
    assert time is not None
    assert time.low is not None
    assert time.high is not None
    line = row(shown(document("out", point)), "2", "1k")
    for ns in (time.mean, time.low, time.high):
        assert f"{ns / 1e3:.1f}" in line, "microseconds"
    assert f"{2e9 / time.mean:,.0f}" in line
    assert f"{1e9 / time.mean:,.0f}" in line


def test_a_missed_precision_is_marked_and_explained() -> None:
    missed = valid_point(0, 2).model_copy(update={"precision_asked": 0.0001})
    text = shown(document("out", missed, valid_point(1, 8)))
    assert "*" in row(text, "2", "1k")
    assert "*" not in row(text, "8", "1k")
    assert "* wider than +-0.01 % asked: 2 x 1k +-" in text


def test_one_launch_is_said_to_be_one_launch() -> None:
    point = valid_point(0, 2)
    assert "within one launch" in shown(document("out", point))
    assert "within one launch" not in shown(
        document("out", point.model_copy(update={"interval": "across 3 launches"}))
    )


def test_noise_content_and_an_early_end_are_said() -> None:
    run = document(
        "out",
        valid_point(0, 2),
        host=Host(noise_warning="other work takes 12 % of the machine"),
        status=RunStatus.INTERRUPTED,
        reason="Ctrl-C",
    )
    text = shown(run)
    assert "Noise: other work takes 12 % of the machine" in text
    assert "Content: constant fill; made-up KV" in text
    assert "The run did not finish: interrupted (Ctrl-C)." in text


@pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.RUNNING])
def test_a_run_that_ended_early_says_so_once_and_how_to_go_on(status: RunStatus) -> None:
    run = document("my runs/a", valid_point(0, 2), status=status, reason=status.value)
    lines = shown(run).splitlines()
    (ending,) = [line for line in lines if line.startswith("The run did not finish: ")]
    assert ending.count(status.value) == (status is not RunStatus.RUNNING)
    assert lines[lines.index(ending) + 1] == "go on with: decodebench run --resume 'my runs/a'"


def test_without_a_kept_repeat_there_is_nothing_to_go_on_with() -> None:
    nothing = other_point(0, Status.NOT_RUN, "interrupted")
    assert "--resume" not in shown(document("out", nothing, status=RunStatus.INTERRUPTED))
    assert "--resume" not in shown(document("out", valid_point(0, 2)))


def test_data_parallel_runs_show_the_batch_per_rank_in_total_and_the_rate_per_device() -> None:
    point = valid_point(0, 2, ranks=4)
    text = shown(document("out", point, ranks=4))
    assert row(text, "2", "8", "1k")
    assert point.output_tokens_per_s_per_device is not None
    assert f"{point.output_tokens_per_s_per_device:,.0f}" in text
    assert "4 x cpu" in text


def test_output_that_is_no_terminal_is_plain_and_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    reason = "step 31 of the window decoded 7 token(s) instead of 8 " * 10
    text = shown(document("out", valid_point(0, 2), other_point(1, Status.INVALID, reason)))
    assert "\x1b" not in text
    assert reason.strip() in text


@pytest.mark.parametrize("width", [100, 80, 60, 40, 20])
def test_a_narrow_terminal_keeps_the_figures_and_the_reasons_and_is_not_overrun(
    width: int, tmp_path: Path
) -> None:
    run = finished_run(tmp_path / "run")
    text = shown(run, width)
    assert all(len(line) <= width for line in text.splitlines())
    time = run.points[0].step_time_ns
    assert time is not None
    assert f"{time.mean / 1e3:.1f}" in text
    if width >= 80:
        assert f"{time.low / 1e3:.1f} to {time.high / 1e3:.1f}" in text  # type: ignore[operator]
    assert all(word in text for word in ("4128", "budget"))


def test_a_reason_with_markup_in_it_is_printed_as_it_is() -> None:
    text = shown(document("out", other_point(0, Status.FAILED, "got [/bold] and [red]")))
    assert "got [/bold] and [red]" in text


def test_a_run_without_points_or_engine_still_prints() -> None:
    text = shown(document("out", engine=None, status=RunStatus.FAILED, reason="the model does not exist"))
    assert "The run did not finish: failed (the model does not exist)." in text


def test_a_terminal_that_knows_only_ascii_gets_only_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_report(document("out", valid_point(0, 2)), console_for(stream))
    stream.flush()
    assert b"valid" in raw.getvalue()


def test_points_sort_as_the_document_has_them() -> None:
    points: tuple[Point, ...] = (valid_point(0, 8), valid_point(1, 2))
    text = shown(document("out", *points))
    assert text.index(row(text, "8", "1k")) < text.index(row(text, "2", "1k"))
