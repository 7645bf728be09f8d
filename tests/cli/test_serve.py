"""`serve --print` shows what would be started, ready to be pasted, without secrets."""

import shlex

import pytest

from decodebench.cli import main as cli
from decodebench.cli.serve import measuring_command, shell_command
from decodebench.engine.command import build_command


def test_the_printed_command_is_one_that_a_shell_takes():
    command = build_command(
        "a model", ("--hf-overrides", '{"a": 1}'), {"fill_mean": 0.5}, env={"OMP_NUM_THREADS": "1"}
    )
    words = shlex.split(shell_command(command, 8000))
    assert words[0] == "OMP_NUM_THREADS=1"
    assert words[2:5] == ["-m", "decodebench.engine.launch", "a model"]
    assert words[5:7] == ["--hf-overrides", '{"a": 1}']
    assert words[-4:] == ["--host", "127.0.0.1", "--port", "8000"]


def test_secrets_are_not_printed():
    command = build_command("m", ("--api-key", "SECRET9"), env={"HF_TOKEN": "SECRET8"})
    assert "SECRET" not in shell_command(command, 8000)


def test_the_printed_port_is_the_one_asked_for_or_said_to_be_chosen_at_the_start(capsys):
    pytest.importorskip("vllm", reason="only an engine that could be started is printed")
    assert cli.main(["serve", "--print", "--", "--port", "9123"]) == 0
    out, err = capsys.readouterr()
    assert shlex.split(out)[-2:] == ["--port", "9123"]
    assert "port" not in err
    assert cli.main(["serve", "--print"]) == 0
    out, err = capsys.readouterr()
    assert 0 < int(shlex.split(out)[-1]) < 65536
    assert "every start of `serve` chooses its own" in err


def test_what_measures_the_server_names_the_model_as_the_server_does():
    command = build_command("/models/my model", ("--served-model-name", "mine"))
    assert measuring_command("http://127.0.0.1:9123", command) == (
        "decodebench run --url http://127.0.0.1:9123 mine"
    )
    assert measuring_command("u", build_command("my model")).endswith(" 'my model'")
