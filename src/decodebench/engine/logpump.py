"""Carry a server's output into its log file, line by line, without its secrets, and notice how far it has come."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from decodebench.engine.phases import PhaseName, is_later, phase_of
from decodebench.engine.redact import Redactor

_LAST_LINES_S = 5.0


class LogPump:
    """A thread that copies `output` to `path` until the last writer has closed it."""

    def __init__(self, output: IO[bytes], path: Path, redactor: Redactor) -> None:
        self.phase: PhaseName = "starting"
        self._output = output
        self._redactor = redactor
        path.parent.mkdir(parents=True, exist_ok=True)
        self._log = path.open("a", encoding="utf-8", buffering=1)
        self._thread = threading.Thread(target=self._copy, name="server-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the last lines; call when all writers have ended."""
        self._thread.join(_LAST_LINES_S)

    def _copy(self) -> None:
        with self._log, self._output:
            for raw in self._output:
                line = raw.decode("utf-8", errors="replace")
                phase = phase_of(line)
                if phase is not None and is_later(phase, self.phase):
                    self.phase = phase
                with suppress(
                    OSError
                ):  # a full disk must not stop the engine: it waits for whoever reads its pipe
                    self._log.write(self._redactor.text(line))
