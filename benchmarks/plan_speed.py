"""How long `decodebench plan` takes: whole processes beside `python -c pass`, interleaved; and the library call alone.

    python benchmarks/plan_speed.py [config.json] [--rounds 20]

Interleaved, so that a noisy machine slows both alike; the medians and their ratio are what counts. CPU time stands
beside the wall clock, because on a shared machine it is the steadier of the two. Reference: at most ten times an empty
interpreter, a few milliseconds for the library call.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

FLASH = Path(__file__).parents[2] / "shared" / "configs" / "deepseek-ai__DeepSeek-V4-Flash.json"
WISH = (
    "--available-kv-memory",
    "40GiB",
    "--batch-size",
    "32,256",
    "--context-len",
    "8k,128k",
    "--gpu",
    "h200",
)
CONNECTORS = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "connectors": [
            {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
            {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"},
        ]
    },
}


# Bytecode is cached, as it is wherever the package is installed.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall clock and CPU time of one process."""
    start, cpu_start = time.perf_counter(), _cpu_of_children()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start, _cpu_of_children() - cpu_start


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def library_call(config: Path) -> float:
    """Median CPU seconds of a call in a process that has made one already."""
    from decodebench import plan

    times = []
    for _ in range(21):
        start = time.process_time()
        plan(
            config, available_kv_memory="40GiB", batch_size=[32, 256], context_len=["8k", "128k"], gpu="h200"
        )
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", type=Path, default=FLASH)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    plan = [sys.executable, "-m", "decodebench.cli.main", "plan", str(args.config), *WISH]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "decodebench plan": plan,
        "decodebench plan --kv-transfer-config": [*plan, "--kv-transfer-config", json.dumps(CONNECTORS)],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command)
    for _ in range(args.rounds):
        for name, command in commands.items():
            times[name].append(seconds(command))
    print(f"{'medians':40}{'wall':>10}{'x empty':>10}{'CPU':>10}{'x empty':>10}")
    medians = {
        name: [statistics.median(kind) for kind in zip(*samples, strict=True)]
        for name, samples in times.items()
    }
    empty = medians["python -c pass"]
    for name, median in medians.items():
        cells = (f"{own * 1e3:8.1f}ms{own / least:10.1f}" for own, least in zip(median, empty, strict=True))
        print(f"{name:40}{''.join(cells)}")
    print(f"{'library call':40}{'':20}{library_call(args.config) * 1e3:8.1f}ms")


if __name__ == "__main__":
    main()
