"""Which device and which vLLM to plan for when nobody says: what is installed here, else an H200 and the newest known.

Also what the engine sets by itself on that device: the step's token and request limits and asynchronous scheduling.
"""

from dataclasses import dataclass
from pathlib import Path

from decodebench.errors import UserError
from decodebench.hma.version import parse_version
from decodebench.hma.vllm_source import installed_version
from decodebench.kv.rules import OLDEST, rules_for
from decodebench.models import GPUS, Gpu, ModelError, find_gpu

DEFAULT_GPU = "h200"
NEWEST = "0.33"
CPU_PROC = Path("/proc/cpuinfo")
NVIDIA_PROC = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Target:
    """The device and the version planned for, and what of that was assumed."""

    gpu: Gpu
    version: str
    assumed: tuple[str, ...]

    @property
    def version_number(self) -> tuple[int, int]:
        return parse_version(self.version)


def choose_target(gpu: str | None, version: str | None, *, without_gpu: str = DEFAULT_GPU) -> Target:
    """The target that the user named, or the installed one; `without_gpu` is the device where none is installed."""
    assumed = []
    if gpu is None:
        gpu = installed_gpu()
        if gpu is None:
            gpu = without_gpu
            assumed.append(f"--gpu {gpu}: no known GPU is installed here")
        else:
            assumed.append(f"--gpu {gpu}: installed here")
    if version is None:
        version = installed_version()
        if version is None:
            version = NEWEST
            assumed.append(f"--vllm-version {version}: the newest known, no vLLM is installed here")
        else:
            assumed.append(f"--vllm-version {version}: installed here")
    return Target(_gpu(gpu), _known(version), tuple(assumed))


def _gpu(name: str) -> Gpu:
    try:
        return find_gpu(name)
    except ModelError:
        raise UserError(f"--gpu {name}: not a device known here", f"choose from {', '.join(GPUS)}") from None


def _known(version: str) -> str:
    """The version, if the rules of KV caches are known for it; one newer than all is taken for the newest."""
    try:
        rules_for(version)
    except ValueError:
        oldest = ".".join(map(str, OLDEST[:2]))
        raise UserError(
            f"--vllm-version {version}: not a version whose KV cache rules are known",
            f"write {oldest} to {NEWEST}, as in 0.32 or 0.24.1",
        ) from None
    return version


def installed_gpu(proc: Path = NVIDIA_PROC) -> str | None:
    """The first NVIDIA GPU, as its driver reports it, if it is one that is known here; no library is loaded."""
    for information in sorted(proc.glob("*/information")):
        text = information.read_text(encoding="utf-8", errors="replace")
        models = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Model:")]
        for model in models:
            return _known_gpu(model)
    return None


def installed_cpu(cpuinfo: Path = CPU_PROC) -> str:
    """The name under which this machine's CPU is known: with AMX, MLA runs on other kernels and blocks."""
    text = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    return "cpu-amx" if " amx_tile" in text else "cpu"


def _known_gpu(model: str) -> str | None:
    """`NVIDIA H100 80GB HBM3` -> h100: the longest known name among the words of the driver's."""
    words = "-".join(model.lower().replace("-", " ").split()) + "-"
    found = [name for name in GPUS if f"-{name}-" in f"-{words}"]
    return max(found, key=len, default=None)


_BIG = ("b200", "gb200", "b300", "gb300")  # at least 160 GiB
_SMALL = ("a100", "a10", "l4", "l40s", "rtx-5090")  # below 70 GiB, and the A100 by name
BIG_SINCE = (0, 28)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Tokens and requests of one engine step."""

    max_num_batched_tokens: int
    max_num_seqs: int


def default_step_limits(target: Target, world_size: int) -> StepLimits:
    """What `vllm serve` takes without flags.

    vLLM 0.32 `engine/arg_utils.py get_batch_defaults`, by device memory; the step for 160 GiB and more is in 0.28 and
    not yet in 0.27.1.
    """
    name = target.gpu.name
    if not target.gpu.is_cuda:
        return StepLimits(2048 * world_size, 128 * world_size)
    if name in _BIG and target.version_number >= BIG_SINCE:
        return StepLimits(16384, 1024)
    return StepLimits(2048, 256) if name in _SMALL else StepLimits(8192, 1024)
