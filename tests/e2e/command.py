"""`decodebench` as a user runs it: a process of its own, watched by its output and by what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import psutil

WAIT_S = 500.0  # a server start on a loaded machine takes minutes
GONE_WITHIN_S = 30.0  # what is promised for a decodebench killed with -9
_MARK = "DECODEBENCH_E2E"
_numbers = count()


class Command:
    """One run of the command. `run` gets an `--out` of its own unless it is told where to write."""

    def __init__(self, directory: Path, verb: str, *args: str) -> None:
        number = next(_numbers)
        self.directory = directory
        self.out = directory / f"run-{number}"
        self._mark = f"{os.getpid()}-{number}"
        self._seen: set[psutil.Process] = set()
        self._sessions: set[int] = set()
        self._err = directory / f"stderr-{number}"
        self._out = directory / f"stdout-{number}"
        ours, after = (args[: args.index("--")], args[args.index("--") :]) if "--" in args else (args, ())
        if verb == "run" and not {"--out", "--resume"} & set(ours):
            ours = (*ours, "--out", str(self.out))
        with self._err.open("wb") as err, self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "decodebench.cli.main", verb, *ours, *after],
                env={**os.environ, _MARK: self._mark, "OMP_NUM_THREADS": "1"},
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                cwd=directory,
            )

    def wait(self) -> int:
        """Its exit code."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running after {WAIT_S:g} s:\n{self.stderr}"
            self._look()
            time.sleep(0.2)
        return self.process.returncode

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    @cached_property
    def document(self) -> dict[str, Any]:
        """What `--json` printed: the last line of stdout."""
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def stored(self) -> dict[str, Any]:
        """The document in its directory, as it stands."""
        return json.loads((self.out / "run.json").read_text())

    def finished_repeats(self) -> int:
        """Valid or not, without warm-up cohorts, as stored now."""
        if not (self.out / "run.json").exists():
            return 0
        points = self.stored["points"]
        return sum(not detail["discarded"] for point in points for detail in point["repeat_details"])

    def until(self, happened, what: str) -> None:
        """Wait for something; fails when the command ends before, or nothing comes."""
        deadline = time.monotonic() + WAIT_S
        while not happened():
            self._look()
            assert self.process.poll() is None, f"ended before {what}:\n{self.stderr}"
            assert time.monotonic() < deadline, f"no {what} within {WAIT_S:g} s:\n{self.stderr}"
            time.sleep(0.05)

    def until_said(self, text: str) -> None:
        self.until(lambda: text in self.stderr, repr(text))

    def until_repeats(self, number: int) -> None:
        self.until(lambda: self.finished_repeats() >= number, f"{number} repeats")

    def family(self) -> list[psutil.Process]:
        """Every living process that came out of this command, whoever is its parent now.

        Found by descent, by the session of one seen before, and by the environment. (vLLM's engine processes write
        their title over their environment, and are init's children once the server is killed.)
        """
        self._look()
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and self._is_ours(process):
                    found.append(process)
            except (psutil.Error, ProcessLookupError):
                continue
        return found

    def _look(self) -> None:
        """Remember what hangs below the command now."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return
        self._seen.update(below)
        for process in below:
            with suppress(ProcessLookupError):
                self._sessions.add(os.getsid(process.pid))
        self._sessions.discard(os.getsid(0))

    def _is_ours(self, process: psutil.Process) -> bool:
        if process in self._seen or os.getsid(process.pid) in self._sessions:
            return True
        return process.environ().get(_MARK) == self._mark

    def left_behind(self, within_s: float = 0.0) -> list[str]:
        """What still runs of it after so many seconds; waits no longer than it has to."""
        deadline = time.monotonic() + within_s
        while (left := self.family()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in left]

    def clean_up(self) -> None:
        """End whatever is left; a test that fails leaves no engine to the next."""
        for process in self.family():
            process.kill()
        self.process.kill()
        self.process.wait()
