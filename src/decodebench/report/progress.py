"""Progress on stderr: what the run waits for, which point, how many requests are filled, how long it will
take.

In a terminal one line that is redrawn; elsewhere (a file, a CI log) one line per change of what is being
done, and one every 30 s, so that silence never looks like a hang.

    with Progress(sys.stderr) as progress:
        progress.show(Moment("filling", point="batch 8, context 4k", filled=3, of=8, left_s=120))
        progress.note("warning: ...")   # a line that stays
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, RLock, Thread
from typing import Self, TextIO

from decodebench.report.units import duration

REDRAW_S = 0.5
REPEAT_LINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What the run is doing now. Absent parts are not shown."""

    doing: str
    """What it does or waits for, e.g. `waiting for the engine to load the model`."""
    point: str = ""
    repeat: int | None = None
    filled: int | None = None
    of: int | None = None
    left_s: float | None = None
    """Time to the end of the run at most, in seconds; a precision that is reached ends it earlier."""

    @property
    def change(self) -> tuple[str, str, int | None]:
        """What makes a new line where lines stay; filling one more request does not."""
        return self.doing, self.point, self.repeat

    def line(self, since_s: float, age_s: float) -> str:
        """`since_s`: how long it has been doing this; `age_s`: how long ago it last said so."""
        repeat = None if self.repeat is None else f"repeat {self.repeat}"
        filled = None if self.filled is None else f"filled {self.filled} of {self.of}"
        left = None if self.left_s is None else f"at most {duration(self.left_s - age_s)} left"
        since = f"{self.doing} ({duration(since_s)})" if since_s >= 1 else self.doing
        return " | ".join(part for part in (since, self.point, repeat, filled, left) if part)


class Progress:
    """Shows the latest `Moment`; a background thread keeps the times on the line moving."""

    def __init__(
        self, stream: TextIO, live: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._live = _is_terminal(stream) if live is None else live
        self._clock = clock
        self._lock = RLock()  # re-entrant: a signal handler may report while a line is being written
        self._stop = Event()
        self._ticker: Thread | None = None
        self._moment: Moment | None = None
        self._began = self._said = self._written = clock()

    def __enter__(self) -> Self:
        self._ticker = Thread(target=self._run, name="progress", daemon=True)
        self._ticker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
        with self._lock:
            self._moment = None
            if self._live:
                self._write("\r\x1b[2K")

    def show(self, moment: Moment) -> None:
        with self._lock:
            now = self._clock()
            changed = self._moment is None or moment.change != self._moment.change
            if self._moment is None or moment.doing != self._moment.doing:
                self._began = now
            self._moment, self._said = moment, now
            if changed or self._live:
                self._draw(now)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._write(f"\r\x1b[2K{text}\n" if self._live else f"{text}\n")
            if self._live:
                self._draw(self._clock())

    def tick(self) -> None:
        """Redraw the live line; elsewhere repeat the line if the last one is 30 s old."""
        with self._lock:
            now = self._clock()
            if self._live or now - self._written >= REPEAT_LINE_S:
                self._draw(now)

    def _run(self) -> None:
        while not self._stop.wait(REDRAW_S):
            self.tick()

    def _draw(self, now: float) -> None:
        if self._moment is None:
            return
        self._written = now
        line = self._moment.line(now - self._began, now - self._said)
        self._write(f"\r\x1b[2K{line[: self._columns() - 1]}" if self._live else f"{line}\n")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # NOTE: nobody reads stderr any more (closed pipe or file); that must not end a measurement


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
