"""The machine that the client side runs on, as a result records it."""

import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from decodebench.engine.noise import measure_noise
from decodebench.engine.redact import Redactor
from decodebench.results.provenance import Host


def describe_host() -> Host:
    """Takes some seconds: a noise figure belongs to every result, measured before the server is started."""
    noise = measure_noise()
    return Host(
        cpu=_cpu_name(),
        cores=os.cpu_count(),
        platform=platform.platform(),
        python=sys.version.split()[0],
        noise=asdict(noise),
        noise_warning=None if noise.is_quiet else str(noise),
        env=Redactor().environment(os.environ),
    )


def with_noise_of(host: Host, earlier: Host) -> Host:
    """The host now, with the noise of the earlier part of its run where that was noisier: a repeat keeps its noise."""
    if _noise(earlier) <= _noise(host):
        return host
    return host.model_copy(update={"noise": earlier.noise, "noise_warning": earlier.noise_warning})


def _noise(host: Host) -> tuple[bool, float]:
    """What orders hosts: one that was warned of is noisier, then the shares of time that noise took."""
    shares = [(host.noise or {}).get(name) for name in ("jitter", "stolen")]
    return host.noise_warning is not None, sum(share for share in shares if isinstance(share, int | float))


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
