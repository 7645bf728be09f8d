"""`serve --print` shows what would be started, ready to be pasted, without secrets."""

import shlex

from decodebench.cli.serve import shell_command
from decodebench.engine.command import build_command


def test_the_printed_command_is_one_that_a_shell_takes():
    command = build_command(
        "a model", ("--hf-overrides", '{"a": 1}'), {"fill_mean": 0.5}, env={"OMP_NUM_THREADS": "1"}
    )
    words = shlex.split(shell_command(command))
    assert words[0] == "OMP_NUM_THREADS=1"
    assert words[2:5] == ["-m", "decodebench.engine.launch", "a model"]
    assert words[5:7] == ["--hf-overrides", '{"a": 1}']
    assert words[-4:] == ["--host", "127.0.0.1", "--port", "8000"]


def test_secrets_are_not_printed():
    command = build_command("m", ("--api-key", "SECRET9"), env={"HF_TOKEN": "SECRET8"})
    assert "SECRET" not in shell_command(command)
