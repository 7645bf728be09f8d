"""The real server: it starts with our connector, says why when it cannot, and never stays behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from decodebench.engine import recipes
from decodebench.engine.command import build_command
from decodebench.engine.server import Server
from decodebench.errors import EngineFailed

pytest.importorskip("vllm", reason="starts vLLM's own server")
pytestmark = pytest.mark.engine

GONE_WITHIN_S = 30  # what is promised for a decodebench killed with -9


@pytest.fixture(scope="module")
def model() -> str:
    return str(recipes.get("tiny-llama").materialise())


def failure_of(model: str, tmp_path: Path, *flags: str, without_connector: bool = False) -> EngineFailed:
    recipe = recipes.get("tiny-llama")
    command = build_command(model, (), recipe_args=recipe.vllm_args, env={"OMP_NUM_THREADS": "1"})
    spec = command.server_spec(tmp_path / "server.log", startup_timeout_s=400)
    args = spec.args[: spec.args.index("--kv-transfer-config")] if without_connector else spec.args
    changed = type(spec)(
        model=model, args=(*args, *flags), env=spec.env, log_path=spec.log_path, startup_timeout_s=400
    )
    with pytest.raises(EngineFailed) as failed, Server(changed) as server:
        server.start()
    assert failed.value.log_path == tmp_path / "server.log"
    return failed.value


def test_a_flag_that_vllm_does_not_know_is_named(model, tmp_path):
    assert failure_of(model, tmp_path, "--no-such-flag").cause == "unrecognized arguments: --no-such-flag"


def test_a_connector_that_cannot_be_imported_is_named(model, tmp_path):
    config = '{"kv_connector": "X", "kv_connector_module_path": "no_such_module", "kv_role": "kv_both"}'
    failed = failure_of(model, tmp_path, "--kv-transfer-config", config, without_connector=True)
    assert failed.cause == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.matrix
def test_a_model_that_does_not_exist_is_named(tmp_path):
    assert "/no/such/model" in failure_of("/no/such/model", tmp_path).cause


@pytest.mark.matrix
def test_a_cache_larger_than_the_memory_is_the_cause_with_its_figures(model, tmp_path):
    failed = failure_of(model, tmp_path, "--kv-cache-memory-bytes", "4000G")
    assert re.search(r"ValueError: .*4000\.0 GiB", failed.cause)


def of_this_test(tmp_path: Path) -> list[int]:
    """Processes below ours and those that were: found by a variable in the environment, or by the log they hang on."""
    found = []
    for process in psutil.process_iter():
        try:
            inherited = process.environ().get("OF_TEST") == str(tmp_path)
            if inherited and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def serving(tmp_path: Path):
    """`decodebench serve tiny-llama` that has said its address, with everything below it."""
    command = [
        sys.executable,
        "-m",
        "decodebench.cli.main",
        "serve",
        "tiny-llama",
        "--log",
        str(tmp_path / "server.log"),
    ]
    environ = {**os.environ, "OF_TEST": str(tmp_path)}
    serve = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert serve.stdout is not None
    address = serve.stdout.readline()
    assert address.startswith("http://127.0.0.1:"), serve.communicate()[1]
    family = psutil.Process(serve.pid).children(recursive=True)
    yield serve, family
    for process in living(family):
        process.kill()
    serve.kill()
    serve.wait()


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    return [
        process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_a_killed_decodebench_leaves_no_engine(serving, tmp_path):
    serve, family = serving
    assert len(family) >= 3  # server, engine core, worker
    serve.kill()
    deadline = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < deadline and (living(family) or of_this_test(tmp_path)):
        time.sleep(0.1)
    assert living(family) == []
    assert of_this_test(tmp_path) == []


def test_ctrl_c_ends_a_serving_server_and_everything_below_it(serving, tmp_path):
    serve, family = serving
    serve.send_signal(signal.SIGINT)
    _, err = serve.communicate(timeout=60)
    assert serve.returncode == 130
    assert "runs decodebench.connector.connector.DecodeBenchConnector" in err
    assert living(family) == []
    assert of_this_test(tmp_path) == []
