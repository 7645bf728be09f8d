"""How long `decodebench plan` takes: whole processes beside `python -c pass`, interleaved; and the library call alone.

    python benchmarks/plan_speed.py [config.json] [--rounds 20]

Interleaved, so that a noisy machine slows both alike; the medians and their ratio are what counts. Reference: at most
ten times an empty interpreter, a few milliseconds for the library call.
"""

import argparse
import json
import os
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


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start


def library_call(config: Path) -> float:
    """Median seconds of a call in a process that has made one already."""
    from decodebench import plan

    times = []
    for _ in range(21):
        start = time.perf_counter()
        plan(
            config, available_kv_memory="40GiB", batch_size=[32, 256], context_len=["8k", "128k"], gpu="h200"
        )
        times.append(time.perf_counter() - start)
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
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command)
    for _ in range(args.rounds):
        for name, command in commands.items():
            times[name].append(seconds(command))
    empty = statistics.median(times["python -c pass"])
    print(f"{'':40}{'median':>10}{'least':>10}{'x empty':>10}")
    for name, samples in times.items():
        median = statistics.median(samples)
        print(f"{name:40}{median * 1e3:8.1f}ms{min(samples) * 1e3:8.1f}ms{median / empty:10.1f}")
    print(f"library call{'':28}{library_call(args.config) * 1e3:8.1f}ms")


if __name__ == "__main__":
    main()
