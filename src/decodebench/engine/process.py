"""One process and everything that ever came out of it: started apart, watched, and ended without a remainder.

vLLM's server starts engine and worker processes of its own. When one of them is killed its children are handed to
init and no tree leads to them any more, so a `Family` is found in three ways: by descent, by session (the leader is
started in a session of its own, which its children inherit), and by having been seen before.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

import psutil

from decodebench.errors import EngineFailed

_ORPHANS_S = 1.0
_LAST_WAIT_S = 10.0


class Family:
    """A child process in a session of its own, with all its descendants."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._leader = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._seen: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self._leader.pid

    @property
    def output(self) -> IO[bytes]:
        """What all members write to stdout and stderr; ends when the last of them has."""
        assert self._leader.stdout is not None, "started with a pipe"
        return self._leader.stdout

    def poll(self) -> int | None:
        """Exit status of the leader (negative: ended by that signal), None while it runs."""
        return self._leader.poll()

    def look(self) -> None:
        """Remember who is there now, so that nobody is lost when a parent in between dies."""
        with suppress(psutil.Error):  # the leader may have ended; the session still leads to its children
            self._seen.update(psutil.Process(self.pid).children(recursive=True))

    def living(self) -> list[psutil.Process]:
        """Members that still run, the leader included; zombies are not living."""
        self.look()
        members = {process for process in self._seen if _runs(process)}
        members.update(
            process
            for process in psutil.process_iter()
            if _session(process.pid) == self.pid and _runs(process)
        )
        return sorted(members, key=lambda process: process.pid)

    def stop(self, grace_s: float) -> None:
        """Ask the leader to end, wait `grace_s`, then kill whoever is left; raises if one cannot be killed.

        Members that outlive the leader are no longer under anyone's care: they get `_ORPHANS_S`, not the whole grace.
        """
        self.look()
        if self.poll() is None:
            self._leader.send_signal(signal.SIGTERM)
        self._wait(lambda: self.poll() is not None, grace_s)
        self._wait(lambda: not self.living(), min(grace_s, _ORPHANS_S))
        deadline = time.monotonic() + _LAST_WAIT_S
        while self.kill():
            if time.monotonic() > deadline:
                left = ", ".join(str(process.pid) for process in self.living())
                raise EngineFailed(f"processes of the engine cannot be ended, not even with SIGKILL: {left}")
            time.sleep(0.05)

    def kill(self) -> int:
        """SIGKILL every member; returns how many there were.

        All are frozen first: a member that starts a child in a session of its own between our look and its death would
        leave one that nothing leads to.
        """
        frozen: set[psutil.Process] = set()
        while fresh := set(self.living()) - frozen:
            for process in fresh:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            frozen |= fresh
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.poll()  # reap the leader
        return len(frozen)

    def _wait(self, done: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not done() and time.monotonic() < deadline:
            time.sleep(0.05)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
