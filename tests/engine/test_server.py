"""A server's life: started, watched, failed, stopped. The engine here is a small real HTTP server with real children;
vLLM itself is met in test_server_vllm.py."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from decodebench.engine.phases import Phase
from decodebench.engine.server import Server, ServerSpec
from decodebench.errors import EngineFailed, UserError

ENGINE = """
import http.server, os, signal, subprocess, sys, time
sleeper = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"]
mode, port = sys.argv[1], int(sys.argv[sys.argv.index("--port") + 1])
print("key in the environment:", os.environ.get("SOME_API_KEY"), "limit:", os.environ["VLLM_ENGINE_READY_TIMEOUT_S"])
print("(EngineCore pid=2) INFO 11-30 02:31:12 [cpu_model_runner.py:68] Starting to load model tiny...", flush=True)
subprocess.Popen(sleeper)                                                          # a child
subprocess.run([sys.executable, "-c", f"import subprocess; subprocess.Popen({sleeper!r})"])      # handed to init
subprocess.Popen(sleeper, start_new_session=True)                                  # in a session of its own
print("children are up", flush=True)
if mode == "dies":
    time.sleep(0.5)
    raise MemoryError("no room for the cache")
if mode == "hangs":
    time.sleep(300)
time.sleep(0.5)
print("(EngineCore pid=2) INFO 11-30 02:31:12 [default_loader.py:1] Loading weights took 0.1 seconds", flush=True)
time.sleep(0.5)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200), self.end_headers()
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


@pytest.fixture
def spec(tmp_path: Path):
    program = tmp_path / "engine.py"
    program.write_text(ENGINE)

    def make(mode: str, **changed: object) -> ServerSpec:
        defaults = {
            "model": mode,
            "log_path": tmp_path / "server.log",
            "launcher": (sys.executable, str(program)),
        }
        return ServerSpec(**{**defaults, "startup_timeout_s": 30.0, **changed})

    return make


def of_this_test(tmp_path: Path) -> list[psutil.Process]:
    """Our descendants of this test, found by what no member of the family can shed: its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("OF_TEST") == str(tmp_path):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_the_phases_are_told_in_order_and_then_it_answers(spec):
    told: list[Phase] = []
    with Server(spec("serves")) as server:
        server.start(told.append)
        assert server.poll() is None
        assert server.base_url.startswith("http://127.0.0.1:")
    assert [phase.name for phase in told] == ["starting", "loading", "compiling", "ready"]
    assert [phase.seconds for phase in told] == sorted(phase.seconds for phase in told)


def test_stopping_leaves_no_process_neither_orphans_nor_those_in_another_session(spec, tmp_path):
    server = Server(spec("serves", env={"OF_TEST": str(tmp_path)})).start()
    assert len(of_this_test(tmp_path)) == 4
    server.stop(grace_s=1.0)
    assert of_this_test(tmp_path) == []
    server.stop()  # twice is as good as once


def test_a_server_that_dies_passes_on_its_own_exception_and_leaves_nothing(spec, tmp_path):
    server = Server(spec("dies", env={"OF_TEST": str(tmp_path)}))
    with pytest.raises(EngineFailed) as failed:
        server.start()
    assert failed.value.cause == "MemoryError: no room for the cache"
    assert failed.value.log_path == tmp_path / "server.log"
    assert failed.value.exit_code == 3
    assert of_this_test(tmp_path) == []


def test_a_server_that_is_not_ready_in_time_is_stopped_and_the_limit_and_phase_are_named(spec, tmp_path):
    server = Server(spec("hangs", startup_timeout_s=2.0, env={"OF_TEST": str(tmp_path)}))
    with pytest.raises(EngineFailed, match=r"not ready after 2 s \(--startup-timeout\); phase: loading"):
        server.start()
    assert of_this_test(tmp_path) == []


def test_a_server_killed_while_it_serves_is_noticed(spec):
    with Server(spec("serves")) as server:
        server.start()
        os.kill(server.pid, signal.SIGKILL)
        while server.poll() is None:
            time.sleep(0.01)
        with pytest.raises(EngineFailed, match="signal 9"):
            server.check()


def test_a_port_in_use_is_told_before_anything_is_started(spec, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: cannot be bound"):
            Server(spec("serves", port=port)).start()
    assert not (tmp_path / "server.log").exists()


def test_no_secret_reaches_the_log_and_vllm_is_told_our_time_limit(spec, tmp_path):
    with Server(spec("serves", env={"SOME_API_KEY": "hunter2-hunter2"})) as server:
        server.start()
    log = (tmp_path / "server.log").read_text()
    assert "hunter2" not in log
    assert "key in the environment: *** limit: 30" in log


PARENT = """
import sys
from pathlib import Path
from decodebench.cli.signals import as_interrupt
from decodebench.engine.server import Server, ServerSpec
program, log = sys.argv[1:]
spec = ServerSpec(model="hangs", log_path=Path(log), launcher=(sys.executable, program), startup_timeout_s=100)
with as_interrupt(), Server(spec) as server:
    try:
        server.start()
    except KeyboardInterrupt as interrupt:
        print("interrupted by", interrupt.signum, flush=True)
        {then}
        sys.exit(128 + interrupt.signum)
"""


def started_parent(tmp_path: Path, then: str = "pass") -> subprocess.Popen[str]:
    (tmp_path / "engine.py").write_text(ENGINE)
    command = [
        sys.executable,
        "-c",
        PARENT.replace("{then}", then),
        str(tmp_path / "engine.py"),
        str(tmp_path / "server.log"),
    ]
    environ = {**os.environ, "OF_TEST": str(tmp_path)}
    parent = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    for _ in range(400):
        log = tmp_path / "server.log"
        if log.exists() and "children are up" in log.read_text():
            return parent
        time.sleep(0.05)
    raise AssertionError("the engine of the test did not start")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_server_starts_stops_it_and_everything_below(tmp_path, signum):
    parent = started_parent(tmp_path)
    parent.send_signal(signum)
    assert parent.wait(timeout=60) == 128 + signum
    assert of_this_test(tmp_path) == []


def test_a_second_signal_kills_at_once(tmp_path):
    parent = started_parent(tmp_path, then="import time; time.sleep(300)")
    parent.send_signal(signal.SIGTERM)
    assert parent.stdout is not None
    assert "interrupted by 15" in parent.stdout.readline()
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=60) == 130
    for _ in range(100):  # it did not wait for those it killed
        if not of_this_test(tmp_path):
            break
        time.sleep(0.05)
    assert of_this_test(tmp_path) == []


def test_a_proxy_in_the_environment_does_not_come_between(spec, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Server(spec("serves")) as server:
        assert server.start().poll() is None


def test_a_log_that_cannot_be_written_leaves_nothing_running(spec, tmp_path):
    (tmp_path / "file").write_text("")
    server = Server(spec("serves", log_path=tmp_path / "file" / "server.log", env={"OF_TEST": str(tmp_path)}))
    with pytest.raises(OSError, match="file"):
        server.start()
    assert of_this_test(tmp_path) == []


def test_a_signal_that_is_ignored_on_purpose_stays_ignored():
    program = (
        "import signal, os; from decodebench.cli.signals import as_interrupt\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"  # as nohup does
        "with as_interrupt(): os.kill(os.getpid(), signal.SIGHUP); print('still here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "still here\n"
