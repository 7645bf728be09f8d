"""Runs fills beside the engine's steps.

On the CPU a job runs in a worker thread; torch releases the interpreter lock while it moves bytes. On CUDA the worker
thread only launches: the copies run on a side stream that first waits for what the caller's stream held at `submit`
(the engine zeroes new blocks and copies prefixes there), and a job is finished when an event behind it has passed.
The caller never waits for the device.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")
Outcome = tuple[Hashable, Result | Exception]


class Executor(ABC, Generic[Result]):
    """Runs jobs in the order of submission and reports each exactly once, its result or its exception."""

    @abstractmethod
    def submit(self, key: Hashable, job: Callable[[], Result]) -> None:
        """Run `job` after all work that is queued on the current stream now."""

    @abstractmethod
    def finished(self) -> list[Outcome[Result]]:
        """Key and result (or exception) of the jobs that have ended since the last call. Never blocks."""

    @abstractmethod
    def close(self, timeout: float) -> None:
        """Let submitted jobs end, for at most `timeout` seconds; then TimeoutError, and those not begun never run.

        What has not been reported yet, dropped jobs included, is still reported by `finished`.
        """


class ImmediateExecutor(Executor[Result]):
    """Runs each job in `submit`, on the current stream: whatever the engine launches next comes after it."""

    def __init__(self) -> None:
        self._finished: list[Outcome[Result]] = []

    def submit(self, key: Hashable, job: Callable[[], Result]) -> None:
        self._finished.append((key, _outcome(job)))

    def finished(self) -> list[Outcome[Result]]:
        finished, self._finished = self._finished, []
        return finished

    def close(self, timeout: float) -> None:
        pass


class FillExecutor(Executor[Result]):
    """Runs jobs in one worker thread, on CUDA on one side stream."""

    def __init__(self, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"asynchronous fill runs on cpu and cuda, not on {device}; set async_fill to false in "
                "kv_connector_extra_config"
            )
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._jobs: SimpleQueue[tuple[Hashable, Callable[[], Result], _Passed] | None] = SimpleQueue()
        self._ended: deque[tuple[Hashable, Result | Exception, _Passed]] = deque()
        self._closed = self._dropping = False
        self._thread = Thread(target=self._work, name="decodebench-fill", daemon=True)
        self._thread.start()

    def submit(self, key: Hashable, job: Callable[[], Result]) -> None:
        assert not self._closed, "a fill was submitted to a closed executor"
        stream = self._stream
        self._jobs.put((key, job, _Passed(stream and torch.cuda.current_stream(stream.device))))

    def finished(self) -> list[Outcome[Result]]:
        finished: list[Outcome[Result]] = []
        while self._ended and self._ended[0][2]:
            key, outcome, _ = self._ended.popleft()
            finished.append((key, outcome))
        return finished

    def close(self, timeout: float) -> None:
        deadline = monotonic() + timeout
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join(timeout)
        self._dropping = self._thread.is_alive()
        while self._dropping or (self._ended and not self._ended[-1][2]):
            if monotonic() > deadline:
                raise TimeoutError(
                    f"a fill was still running {timeout:g} s after its executor was told to close"
                )
            sleep(0.001)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            key, job, ready = item
            if self._dropping:
                dropped = RuntimeError("dropped: the executor was closed before this fill began")
                self._ended.append((key, dropped, _Passed(None)))
            elif self._stream is None:
                self._ended.append((key, _outcome(job), _Passed(None)))
            else:
                self._ended.append((key, *_launch(self._stream, job, ready)))


class _Passed:
    """True once all work that was queued on `stream` at its making has ended; always true without a stream."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.event = None if stream is None else stream.record_event()

    def __bool__(self) -> bool:
        return self.event is None or bool(self.event.query())


def _launch(
    stream: torch.cuda.Stream, job: Callable[[], Result], ready: _Passed
) -> tuple[Result | Exception, _Passed]:
    with torch.cuda.device(stream.device), torch.cuda.stream(stream):
        if ready.event is not None:
            stream.wait_event(ready.event)
        outcome = _outcome(job)
        # Also behind a job that failed half-way: its first copies may still run.
        return outcome, _Passed(stream)


def _outcome(job: Callable[[], Result]) -> Result | Exception:
    try:
        return job()
    except Exception as error:
        return error
