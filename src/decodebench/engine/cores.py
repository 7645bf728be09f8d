"""How many cores this process may use, and how many of them the CPU engine's model may take.

On the CPU build every OpenMP thread of the model spins on a core of its own. When they take all cores, the engine's and
the server's processes wait for one, and step times jump many-fold (measured: 5 ms to 260 ms on two cores). So one core
stays free.

vLLM's worker overrides `OMP_NUM_THREADS` with the number of cores it binds to, and binds to all of them when none would
be left: it reserves one a worker for the scheduler and one more as soon as there is a KV connector, so on two cores
the model gets both (0.32 `utils/ompmultiprocessing.py`). `VLLM_CPU_OMP_THREADS_BIND=nobind` lets the variable stand.
"""

import os

from decodebench.engine.distribution import is_cpu_build

THREADS = "OMP_NUM_THREADS"
BINDING = "VLLM_CPU_OMP_THREADS_BIND"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def model_threads() -> int:
    """Threads for the model on the CPU build: all cores but one."""
    return max(1, usable_cores() - 1)


def cpu_environment() -> dict[str, str]:
    """What a CPU engine's environment should say and the user's does not; empty for an engine on another device."""
    wanted = {THREADS: str(model_threads()), BINDING: "nobind"} if is_cpu_build() else {}
    return {name: value for name, value in wanted.items() if name not in os.environ}
