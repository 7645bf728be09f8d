"""`decodebench plan`: one process, a readable answer or one JSON document, one message for wrong input."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.planner.configs import gemma3, llama

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "plan-1.json").read_text())
HEAVY = ("torch", "vllm", "numpy", "pyarrow", "transformers", "rich")
TARGET = ("--gpu", "h200", "--vllm-version", "0.31", "--available-kv-memory", "40GiB")


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(gemma3()))
    return str(path)


def decodebench(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "decodebench.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def transfer(*names: str) -> str:
    children: list[dict[str, Any]] = [{"kv_connector": name, "kv_role": "kv_both"} for name in names]
    parent = {"kv_connector": "MultiConnector", "kv_role": "kv_both"}
    return json.dumps({**parent, "kv_connector_extra_config": {"connectors": children}})


def test_the_answer_names_what_forces_it_what_it_costs_and_what_fits(config: str) -> None:
    wish = (
        "--batch-size",
        "4,400",
        "--context-len",
        "8k",
        "--kv-transfer-config",
        transfer("NixlConnector", "ExampleConnector"),
    )
    done = decodebench("plan", config, *TARGET, *wish)
    assert done.returncode == 0, done.stderr
    for text in (
        "Hybrid KV cache manager: off",
        "ExampleConnector does not support",
        "forced by connectors[1]",
        "KV cache groups with the manager off",
        "and with it on",
        "1 is the null block",
        "Maximum concurrency for 131,072 tokens per request",
        "needs 200,000 of",
    ):
        assert text in done.stdout, text


def test_json_is_one_document_of_the_schema(config: str) -> None:
    done = decodebench("plan", config, *TARGET, "--batch-size", "4", "--context-len", "8k", "--json")
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), SCHEMA)


def test_a_serve_line_can_be_pasted_and_our_options_win(config: str) -> None:
    line = ("vllm", "serve", config, "-tp", "2", "--max-model-len", "65536", "--port", "8000")
    done = decodebench("plan", *TARGET, "--max-model-len", "32768", "--json", "--", *line)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["engine"]["tensor_parallel_size"] == 2
    assert document["engine"]["max_model_len"] == 32768
    assert document["ignored"] == ["--port"]


def test_the_environment_of_vllm_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(llama(max_len=4096)))
    wish = ("plan", str(path), *TARGET, "--max-model-len", "8192")
    assert decodebench(*wish).returncode == 2
    assert decodebench(*wish, VLLM_ALLOW_LONG_MAX_MODEL_LEN="1").returncode == 0


def test_cannot_tell_has_its_own_exit_code(config: str) -> None:
    away = json.dumps({"kv_connector": "X", "kv_role": "kv_both", "kv_connector_module_path": "not.here"})
    done = decodebench("plan", config, *TARGET, "--kv-transfer-config", away, "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout)["hma"]["verdict"] == "cannot tell"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--available-kv-memory", "much"), "--available-kv-memory"),
        (("--batch-size", "0"), "--batch-size"),
        (("--context-len", "8x"), "--context-len"),
        (("--tensor-parallel-size", "x"), "--tensor-parallel-size"),
        (("--gpu", "abacus"), "abacus"),
        (("--kv-transfer-config", "{"), "--kv-transfer-config"),
        (("--kv-transfer-config", '{"kv_connector": "NixlConnector"}'), "kv_role"),
        (("--kv-transfer-config", transfer("Nonsense")), "connectors[0]"),
        (
            ("--no-disable-hybrid-kv-cache-manager", "--kv-transfer-config", transfer("ExampleConnector")),
            "asked on",
        ),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(config: str, args: tuple[str, ...], named: str) -> None:
    if (
        named == "connectors[0]"
    ):  # an unknown name is certain to be wrong only where the version's own register is read
        args = (*args, "--vllm-version", "0.32")
    done = decodebench("plan", config, "--gpu", "h200", *args)
    assert done.returncode == 2, done.stdout
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_missing_model_says_what_is_accepted() -> None:
    done = decodebench("plan", "./nowhere")
    assert done.returncode == 2
    assert "config.json" in done.stderr


def test_nothing_heavy_is_imported(config: str) -> None:
    code = (
        "import sys; from decodebench.cli.main import main;"
        "code = main(sys.argv[1:]);"
        f"sys.exit(code or ', '.join(m for m in {HEAVY!r} if m in sys.modules) or 0)"
    )
    wish = ("plan", config, *TARGET, "--kv-transfer-config", transfer("NixlConnector"), "--context-len", "8k")
    done = subprocess.run([sys.executable, "-c", code, *wish], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
