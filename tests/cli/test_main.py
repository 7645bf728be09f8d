"""The command as a user meets it: help that answers at once, errors that say what to do, exit codes."""

import subprocess
import sys

import pytest

from decodebench.cli import main as cli
from decodebench.cli.arguments import split_engine_args
from decodebench.errors import EngineFailed, UserError

HEAVY = ("torch", "vllm", "numpy", "pyarrow", "transformers", "aiohttp", "pydantic", "rich")


def decodebench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "decodebench.cli.main", *args], capture_output=True, text=True, timeout=120
    )


PARSER = cli.build_parser()


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], *([verb, "--help"] for verb in cli.VERBS)], ids=" ".join
)
def test_help_and_version_import_nothing_heavy(args):
    program = (
        "import sys; from decodebench.cli.main import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print('HEAVY', heavy)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stderr


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("run", "server starts included"),
        ("run", "of a point in each launch; what --resume starts is another launch"),
        ("fidelity", "all servers together, server starts not included"),
    ],
)
def test_help_says_what_a_limit_counts(verb, said, capsys):
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    assert said in " ".join(capsys.readouterr().out.split())


def test_the_first_double_dash_parts_our_arguments_from_the_engines():
    assert split_engine_args(["run", "--", "-dp", "4", "--", "x"]) == (["run"], ("-dp", "4", "--", "x"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "required"),
        (["serv"], "invalid choice"),
        (["serve", "--fil", "normal"], "did you mean --fill?"),
        (["serve", "--startup-timeout", "soon"], "'soon' is not a number of seconds"),
        (["serve", "--startup-timeout", "-1"], "--startup-timeout"),
        (["serve", "--fill", "zeros"], "--fill"),
        (["serve", "--fill", "constant", "--fill-std", "0.1"], "--fill normal"),
        (["serve", "--fill", "normal", "--fill-std", "-1"], "must not be negative"),
        (["serve", "a", "b"], "unexpected argument 'b'"),
        (["serve", "--nonsense"], "unknown option --nonsense"),
        (["serve", "--", "tiny-llama"], "MODEL goes before `--`"),
        (["serve", "tiny-gema3"], "did you mean tiny-gemma3?"),
        (["serve", "./no-such-folder"], "no such folder"),
        (["serve", "--", "--kv-transfer-config", "{}"], "--kv-transfer-config (after --)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_input_ends_with_code_2_and_one_message_without_a_traceback(args, said, capsys):
    pytest.importorskip("vllm", reason="some of these are found only where an engine could be started")
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--max-model-len", "-tp", "--enforce-eager", "--max_num_seqs=4"])
def test_an_option_of_vllm_before_the_double_dash_is_told_to_go_behind_it(option, capsys):
    pytest.importorskip("vllm", reason="the options are those of the installed vLLM")
    assert cli.main(["serve", option]) == 2
    assert f"-- {option}" in capsys.readouterr().err


class Verb:
    """Stands in for a verb's module: ends the way the test wants."""

    def __init__(self, ends: BaseException) -> None:
        self.ends = ends

    def run(self, args: object) -> int:
        raise self.ends


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        (UserError("wrong", "do right"), 2, "wrong\n  -> do right"),
        (EngineFailed("it died", "ValueError: x"), 3, "it died\n  ValueError: x"),
        (RuntimeError("oops"), 70, "internal error: RuntimeError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_way_to_end_has_its_exit_code(ends, code, said, capsys, monkeypatch):
    real = cli.import_module
    monkeypatch.setattr(cli, "build_parser", lambda verbs: PARSER)
    monkeypatch.setattr(
        cli, "import_module", lambda name: Verb(ends) if name.endswith("doctor") else real(name)
    )
    assert cli.main(["doctor"]) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert cli.main(["doctor", "--debug"]) == code
    assert ("Traceback" in capsys.readouterr().err) == (code != 130)


def test_a_reader_that_goes_away_ends_us_quietly():
    program = f"{sys.executable} -m decodebench.cli.main serve --help | true"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr


def test_a_dry_run_of_a_grid_that_does_not_fit_says_so_and_is_no_error(capsys):
    pytest.importorskip("vllm", reason="a dry run is of an engine that could be started")
    assert cli.main(["run", "--dry-run", "--batch-size", "65"]) == 0
    assert "no: 65 requests, but" in " ".join(capsys.readouterr().out.split())


def test_a_dry_run_imports_neither_torch_nor_vllm():
    """vLLM's import costs seconds and prints warnings into our progress."""
    code = (
        "import sys\nfrom decodebench.cli.main import main\n"
        "main(['run', '--dry-run', '--batch-size', '1', '--context-len', '1k'])\n"
        "sys.exit(bool({'torch', 'vllm'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
