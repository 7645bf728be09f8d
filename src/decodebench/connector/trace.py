"""Every step of one scheduler in a file: CSV, with the columns of the step log."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from decodebench.results.steps import STEP_COLUMNS


class Trace:
    """The file of one scheduler in `directory`, named by its data-parallel rank and process.

    Its rows are written in a scheduler hook, where an exception ends the engine: a file that takes no more rows (a full
    disk) is given up with one warning.

    Raises:
        ValueError: the file cannot be begun.
    """

    def __init__(self, directory: str, dp_rank: int, warn: Callable[[str], None]) -> None:
        self._path = Path(directory) / f"steps-dp{dp_rank}-{os.getpid()}.csv"
        self._warn = warn
        self._file: TextIO | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Line by line: vLLM ends its engine process without asking it to close anything.
            self._file = self._path.open("w", encoding="ascii", buffering=1)
            self._file.write(",".join(STEP_COLUMNS) + "\n")
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            self.close()
            raise ValueError(
                f"DecodeBenchConnector: trace_dir {directory!r} cannot be written: {error}"
            ) from error

    def write(self, row: Iterable[int]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(",".join(map(str, row)) + "\n")
        except OSError as error:
            self.close()
            self._warn(f"DecodeBenchConnector: no more steps are written to {self._path}: {error}")

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what could not be written before is tried once more
                file.close()
