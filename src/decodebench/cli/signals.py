"""SIGTERM and SIGHUP act as Ctrl-C; a second signal of any of them kills the engine and us at once.

The first one raises `Interrupted` in the main thread, so every `with` and `finally` on the way out runs: the server is
stopped, finished points are kept. A user who signals again does not want to wait for that.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from decodebench.engine import live

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The user asked us to stop; `signum` says by which signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Within it, the first of `SIGNALS` raises `Interrupted` and the second ends everything."""
    seen: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        seen.append(signum)
        if len(seen) == 1:
            raise Interrupted(signum)
        live.kill_all()
        os._exit(128 + signum)

    # NOTE: under `nohup` SIGHUP is ignored on purpose, and a shell's background job may ignore SIGINT: leave those.
    caught = [signum for signum in SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, handle) for signum in caught}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
