"""How many cores this process may use, and how many of them the CPU engine's model may take.

On the CPU build every OpenMP thread of the model spins on a core of its own. When they take all cores, the engine's and
the server's processes wait for one, and step times jump many-fold (measured: 5 ms to 260 ms on two cores). So one core
stays free.
"""

import os

from decodebench.engine.distribution import is_cpu_build

THREADS = "OMP_NUM_THREADS"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def model_threads() -> int:
    """Threads for the model on the CPU build: all cores but one."""
    return max(1, usable_cores() - 1)


def cpu_environment() -> dict[str, str]:
    """What a CPU engine's environment should say and the user's does not; empty for an engine on another device."""
    if THREADS in os.environ or not is_cpu_build():
        return {}
    return {THREADS: str(model_threads())}
