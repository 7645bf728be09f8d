import io
import os
import pty
import re
import threading

import pytest

from decodebench.report.progress import REPEAT_LINE_S, Moment, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_elsewhere_than_in_a_terminal_a_change_is_one_plain_line(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(stream, clock=clock)
    progress.show(Moment("waiting for the engine to load the model"))
    for filled in range(1025):
        progress.show(Moment("filling", "batch 1024, context 4k", 3, filled, 1024, left_s=125))
    progress.show(Moment("measuring", "batch 1024, context 4k", 3, left_s=60))
    assert stream.getvalue().splitlines() == [
        "waiting for the engine to load the model",
        "filling | batch 1024, context 4k | repeat 3 | filled 0 of 1024 | at most 2 min 05 s left",
        "measuring | batch 1024, context 4k | repeat 3 | at most 1 min 00 s left",
    ]


def test_elsewhere_a_line_is_repeated_every_30_s_with_the_times_moved_on(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(stream, clock=clock)
    progress.show(Moment("loading", left_s=100))
    for _ in range(2 * int(REPEAT_LINE_S)):
        clock.now += 1
        progress.tick()
    assert stream.getvalue().splitlines() == [
        "loading | at most 1 min 40 s left",
        "loading (30 s) | at most 1 min 10 s left",
        "loading (1 min 00 s) | at most 40 s left",
    ]


def test_in_a_terminal_the_line_is_redrawn_in_place_and_wiped_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, live=True, clock=clock) as progress:
        progress.show(Moment("filling", filled=1, of=8))
        progress.show(Moment("filling", filled=2, of=8))
        progress.note("warning: noisy")
    written = stream.getvalue()
    assert [line for line in written.split("\r\x1b[2K") if line.endswith("8")][:2] == [
        "filling | filled 1 of 8",
        "filling | filled 2 of 8",
    ]
    assert re.findall(r"[^\n]*\n", written) == [re.search(r".*\n", written).group()], "only notes end a line"  # type: ignore[union-attr]
    assert "\r\x1b[2Kwarning: noisy\n\r\x1b[2Kfilling" in written
    assert written.endswith("\r\x1b[2K")


def test_a_live_line_never_wraps(clock: Clock) -> None:
    stream = io.StringIO()
    Progress(stream, live=True, clock=clock).show(Moment("x" * 500))
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == 79


def test_a_terminal_is_recognised_unless_it_is_dumb(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as stream:
        for term, live in (("xterm", True), ("dumb", False)):
            monkeypatch.setenv("TERM", term)
            Progress(stream).show(Moment("loading"))
            assert (b"\x1b[2K" in os.read(parent, 100)) is live
    os.close(parent)


def test_a_closed_stream_does_not_end_the_run(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, clock=clock) as progress:
        stream.close()
        progress.show(Moment("measuring"))
        progress.note("still here")


def test_a_reader_that_has_gone_does_not_end_the_run(clock: Clock) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    Progress(stream, clock=clock).show(Moment("measuring"))
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_the_background_thread_ends_with_the_block() -> None:
    before = threading.active_count()
    with Progress(io.StringIO()):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
