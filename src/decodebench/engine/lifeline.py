"""No engine outlives the process that started it, not even one killed with -9.

Each process of the engine watches its parent through a pidfd, which becomes readable when the parent ends; the watching
thread sleeps in the kernel until then and costs the benchmark nothing. (The kernel's own parent-death signal is not
used: it fires when the *thread* that started the process ends, and a server may be started from a thread.)

The server process asks itself to stop first, as Ctrl-C would, and is killed if it has not stopped after a grace; the
processes below it are killed as soon as the one above them is gone.
"""

import os
import select
import signal
import threading
import time

PARENT = "DECODEBENCH_PARENT_PID"
"""Environment variable: id of the process whose end ends this one; unset means the parent, `0` means nobody."""

GRACE_S = 5.0
"""Time for the server to shut its engine down by itself once its starter is gone."""

POLL_S = 1.0


def hold(*, is_server: bool) -> None:
    """Tie this process to its parent, and name itself as the one its own children hang on. Call once, early."""
    parent = int(os.environ.get(PARENT, os.getppid()))
    os.environ[PARENT] = str(os.getpid())
    if parent:
        grace_s = GRACE_S if is_server else 0.0
        threading.Thread(target=_end_with, args=(parent, grace_s), name="lifeline", daemon=True).start()


def _end_with(parent: int, grace_s: float) -> None:
    _wait_for_end(parent)
    if grace_s:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_end(pid: int) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # no pidfds: another system, an old kernel, a sandbox
        while _is_alive(pid):
            time.sleep(POLL_S)
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
