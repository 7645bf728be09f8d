"""A vLLM server that belongs to us: started, watched until it answers, and stopped without leaving a process.

    spec = ServerSpec(model="tiny", args=("--max-model-len", "4096"), env={}, log_path=Path("server.log"))
    with Server(spec) as server:
        server.start(lambda phase: print(phase.name, phase.seconds))
        requests.get(server.base_url + "/v1/models")

It listens on the loopback address only: a server with our connector answers with meaningless text. Its output goes
through a thread of ours into the log, so no secret reaches the disk and the phases of the start are seen as they come.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from decodebench.engine import live
from decodebench.engine.failure import cause_of
from decodebench.engine.lifeline import PARENT
from decodebench.engine.logpump import LogPump
from decodebench.engine.loopback import LOOPBACK, open_url
from decodebench.engine.phases import Phase, PhaseName, is_later
from decodebench.engine.ports import claim_port
from decodebench.engine.process import Family
from decodebench.engine.redact import Redactor, secrets_in
from decodebench.errors import EngineFailed

LAUNCHER = (sys.executable, "-m", "decodebench.engine.launch")
STARTUP_TIMEOUT_S = 3600.0
STOP_GRACE_S = 20.0

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What to start. `args` is all that follows the model on `vllm serve`'s command line, without host and port."""

    model: str
    log_path: Path
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # on top of our own environment
    port: int = 0  # 0: a free one, chosen at start
    startup_timeout_s: float = STARTUP_TIMEOUT_S
    launcher: tuple[str, ...] = LAUNCHER

    @property
    def host(self) -> str:
        return LOOPBACK

    def command(self, port: int) -> tuple[str, ...]:
        return (*self.launcher, self.model, *self.args, "--host", self.host, "--port", str(port))

    def environment(self) -> dict[str, str]:
        """The whole environment of the server: ours, what vLLM must know of our time limit, then `env`."""
        ready_timeout = str(max(1, round(self.startup_timeout_s)))
        return {
            **os.environ,
            "VLLM_ENGINE_READY_TIMEOUT_S": ready_timeout,
            PARENT: str(os.getpid()),
            **self.env,
        }


class Server:
    """One server process and all its children. Not thread-safe; `stop` may be called at any time, twice as well."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._family: Family | None = None
        self._pump: LogPump | None = None
        self._port = 0

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def base_url(self) -> str:
        return f"http://{self.spec.host}:{self._port}"

    def poll(self) -> int | None:
        """Exit status of the server process, None while it runs."""
        return self._running.poll()

    def start(self, on_phase: Callable[[Phase], None] = lambda phase: None) -> Self:
        """Start and wait until the server answers; `on_phase` hears of every phase that begins.

        Raises `UserError` for a port that is taken and `EngineFailed` when the server dies or needs longer than
        `startup_timeout_s`; in both cases nothing is left running.
        """
        assert self._family is None, "a Server starts once"
        self._port = claim_port(self.spec.port)
        command, environ = self.spec.command(self._port), self.spec.environment()
        redactor = Redactor(secrets_in(command, environ))
        self._family = Family(command, environ)
        live.add(self._family.pid, self._family.kill)
        try:
            self._pump = LogPump(self._family.output, self.spec.log_path, redactor)
            self._wait_until_ready(on_phase)
        except BaseException:
            self.stop(grace_s=5.0)
            raise
        return self

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """End the server and every process that came out of it; none is left when this returns."""
        family = self._family
        if family is None:
            return
        family.stop(grace_s)
        live.remove(family.pid)
        if self._pump is not None:
            self._pump.close()

    def check(self) -> None:
        """Raise `EngineFailed`, with the cause found in the log, if the server has died."""
        status = self.poll()
        if status is not None:
            raise self._failed(f"the vLLM server {_ended(status)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _running(self) -> Family:
        assert self._family is not None, "the server has not been started"
        return self._family

    def _wait_until_ready(self, on_phase: Callable[[Phase], None]) -> None:
        assert self._pump is not None
        begun = time.monotonic()
        now: PhaseName = "starting"
        on_phase(Phase(now, 0.0))
        while not self._answers():
            self._running.look()
            self.check()
            elapsed = time.monotonic() - begun
            if is_later(self._pump.phase, now):
                now = self._pump.phase
                on_phase(Phase(now, elapsed))
            if elapsed > self.spec.startup_timeout_s:
                limit = f"{self.spec.startup_timeout_s:g} s"
                raise self._failed(
                    f"the vLLM server was not ready after {limit} (--startup-timeout); phase: {now}"
                )
            time.sleep(_POLL_S)
        on_phase(Phase("ready", time.monotonic() - begun))

    def _answers(self) -> bool:
        try:
            with open_url(self.base_url + "/health", timeout_s=5) as response:
                return bool(response.status == 200)
        except (OSError, HTTPException):
            return False

    def _failed(self, what: str) -> EngineFailed:
        self.stop(grace_s=5.0)  # the log is complete only when its writers have ended
        log = self.spec.log_path
        return EngineFailed(what, cause_of(log.read_text(errors="replace")), log)


def _ended(status: int) -> str:
    if status == -9:
        return "was killed (signal 9): often the kernel, for want of memory"
    return f"was ended by signal {-status}" if status < 0 else f"ended with exit code {status}"
