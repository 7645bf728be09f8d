"""Did all data-parallel ranks decode while each one's window was measured?

Ranks share the machine, and with experts spread over them they step in lockstep: a rank whose neighbour still waits
or has already finished is slowed or left alone. Each rank's window must therefore lie within the decode steps of
all others.

Times are of each host's own monotonic clock. Requests of one cohort go out together, so ranks whose clocks differ by
more than `SAME_CLOCK_S` live on different hosts, and nothing can be said about them.
"""

from collections.abc import Sequence

from decodebench.bench.step_log import StepLog
from decodebench.bench.window import Window

SAME_CLOCK_S = 3600


def apart(windows: Sequence[Window], logs: Sequence[StepLog]) -> str | None:
    """Why the ranks' windows do not measure one load, or None. `windows[i]` was cut from `logs[i]`."""
    spans = [_decoding(log) for log in logs]
    for rank, window in enumerate(windows):
        begun, ended = int(window.rows.scheduled_ns[0]), int(window.rows.done_ns[-1])
        for other, (first, last) in enumerate(spans):
            if other == rank or abs(first - begun) > SAME_CLOCK_S * 10**9:
                continue
            if begun < first:
                return f"rank {other} began to decode {(first - begun) / 1e6:.1f} ms after rank {rank}'s window did"
            if ended > last:
                return f"rank {other} ended {(ended - last) / 1e6:.1f} ms before rank {rank}'s window did"
    return None


def _decoding(log: StepLog) -> tuple[int, int]:
    """When the first decode step of a rank was scheduled, and when its last one was."""
    decode = log.scheduled_ns[log.num_reqs > 0]
    return int(decode[0]), int(decode[-1])
