"""What a server is doing, by the counters that it publishes at /metrics."""

import re
from dataclasses import dataclass

_COUNTERS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_requests_kv_fetch_by_stage": "filling",
    "vllm:generation_tokens_total": "tokens",
}
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Activity:
    """The server's own counters, summed over its ranks."""

    running: int
    waiting: int
    filling: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.running} requests running, {self.waiting} waiting, {self.filling} of them being filled"


def read_activity(metrics: str) -> Activity:
    """The counters in vLLM's Prometheus text; those that are absent count as 0."""
    sums = dict.fromkeys(_COUNTERS.values(), 0.0)
    for name, value in _SAMPLE.findall(metrics):
        if name in _COUNTERS:
            sums[_COUNTERS[name]] += float(value)
    return Activity(**{name: int(value) for name, value in sums.items()})
