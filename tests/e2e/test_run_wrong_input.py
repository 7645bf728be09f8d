"""Wrong input of every option of `decodebench run`: exit code 2, one message that names it, and nothing started."""

import json

import pytest

from decodebench.cli import main as cli
from decodebench.engine.server import Server

pytest.importorskip("vllm", reason="some of these are found only where an engine could be started")

WRONG = [
    (["./no-such-folder"], "./no-such-folder"),
    (["tiny-gema3"], "did you mean tiny-gemma3?"),
    (["--", "tiny-llama"], "MODEL goes before `--`"),
    (["--", "tiny-llama", "--enforce-eager"], "MODEL goes before `--`"),
    (["tiny-gemma3", "more"], "more"),
    (["--fill", "zeros"], "--fill"),
    (["--fill", "normal", "--fill-mean", "x"], "--fill-mean"),
    (["--fill-mean", "nan"], "--fill-mean"),
    (["--fill-mean", "inf"], "--fill-mean"),
    (["--fill", "constant", "--fill-std", "0.1"], "--fill-std"),
    (["--fill-std", "-0.1"], "--fill-std"),
    (["--fill", "normal", "--fill-std", "-1"], "--fill-std"),
    (["--fill", "normal", "--fill-std", "nan"], "--fill-std"),
    (["--fill", "donor", "--donors", "0"], "--donors"),
    (["--fill", "donor", "--donors", "some"], "--donors"),
    (["--fill", "constant", "--donors", "4"], "--donors"),
    (["--fill-mean", "0.1", "--donors", "4"], "--donors"),
    (["--fill", "donor", "--donor-len", "0"], "--donor-len"),
    (["--fill", "donor", "--donor-len", "2x"], "--donor-len"),
    (["--fill", "donor", "--donor-text", "./no-such-text"], "--donor-text"),
    (["--with-connector", "{"], "--with-connector"),
    (["--with-connector", "7"], "--with-connector"),
    (["--with-connector-first", '{"kv_role": "kv_both"}'], "--with-connector-first"),
    (["--startup-timeout", "0"], "--startup-timeout"),
    (["--startup-timeout", "soon"], "--startup-timeout"),
    (["--batch-size", "0"], "--batch-size"),
    (["--batch-size", "-1"], "--batch-size"),
    (["--batch-size", "a"], "--batch-size"),
    (["--batch-size", "1,,2"], "--batch-size"),
    (["--batch-size", ""], "--batch-size"),
    (["--batch-size", "1.5"], "--batch-size"),
    (["--context-len", "4x"], "--context-len"),
    (["--context-len", "0"], "--context-len"),
    (["--batch-size", "2000"], "2000 requests, but --max-num-seqs is 64: raise it after `--`"),
    (["--context-len", "1m"], "no point fits"),
    (["--context-len"], "--context-len"),
    (["--seed", "-1"], "--seed"),
    (["--seed", "one"], "--seed"),
    (["--window-steps", "7"], "--window-steps"),
    (["--window-steps", "x"], "--window-steps"),
    (["--precision", "0"], "--precision"),
    (["--precision", "2"], "--precision"),
    (["--precision", "200%"], "--precision"),
    (["--precision", "two"], "--precision"),
    (["--require-precision=yes"], "--require-precision"),
    (["--max-repeats", "0"], "--max-repeats"),
    (["--window-steps", "0"], "--window-steps"),
    (["--max-repeats", "4"], "--max-repeats"),
    (["--max-repeats", "many"], "--max-repeats"),
    (["--launches", "0"], "--launches"),
    (["--launches", "1.5"], "--launches"),
    (["--max-time", "0"], "--max-time"),
    (["--max-time", ""], "--max-time"),
    (["--max-time", "5 minutes"], "--max-time"),
    (["--stall-timeout", "-5"], "--stall-timeout"),
    (["--stall-timeout", "later"], "--stall-timeout"),
    (["--url", "localhost:8000"], "--url"),
    (["--url", ""], "--url"),
    (["--url", "http://127.0.0.1:99999"], "--url"),
    (["--url", "http://[::1"], "--url"),
    (["--url", "http://:8000"], "--url"),
    (["--url", "http://a b:8000"], "--url"),
    (["--url", "http://127.0.0.1:1", "--launches", "2"], "--launches 2"),
    (["--url", "http://127.0.0.1:1", "--", "--enforce-eager"], "--url"),
    (["--out", "full"], "full"),
    (["--out", "a-file"], "a-file"),
    (["--resume", "no-such-run"], "no-such-run"),
    (["--resume", "full"], "full"),
    (["--resume", "no-such-run", "--from", "no-such-run"], "--resume"),
    (["--resume", "full", "--batch-size", "4"], "--batch-size"),
    (["--from", "no-such-run"], "no-such-run"),
    (["--from", "full", "--", "--enforce-eager"], "--from"),
    (["--config", "no-such-file.toml"], "no-such-file.toml"),
    (["--config", "broken.toml"], "broken.toml"),
    (["--config", "list.json"], "list.json"),
    (["--config", "unknown.json"], "--batch-sise"),
    (["--config", "nested.json"], "nested.json"),
    (["--config", "wrong.json"], "--batch-size"),
    (["--dry-run", "--json"], "nothing is measured"),
    (["--dry-run=1"], "--dry-run"),
    (["--audit=1"], "--audit"),
    (["--fidelity=1"], "--fidelity"),
    (["--json=1"], "--json"),
    (["--debug=1"], "--debug"),
    (["--no-such-option"], "--no-such-option"),
    (["--max-model-len", "4096"], "--max-model-len"),
    (["--", "--kv-transfer-config", "{}"], "--kv-transfer-config"),
    (["--", "--host", "0.0.0.0"], "--host"),
    (["--", "--port", "x"], "--port"),
    (["--", "--pipeline-parallel-size", "2"], "--pipeline-parallel-size"),
]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A directory with what the options name, and an engine that cannot be started."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("x")
    (tmp_path / "a-file").write_text("x")
    (tmp_path / "broken.toml").write_text("batch-size = = 1")
    for name, content in {
        "list": [1],
        "unknown": {"batch-sise": "1"},
        "nested": {"batch-size": {"from": 1}},
        "wrong": {"batch-size": "0"},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Server, "start", lambda *_: pytest.fail("an engine was started"))
    return tmp_path


@pytest.mark.parametrize(
    ("args", "named"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_input_is_one_message_and_starts_nothing(args, named, workplace, capsys):
    before = sorted(workplace.rglob("*"))
    assert cli.main(["run", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err
    assert err.startswith("decodebench: ")
    assert "decodebench: decodebench" not in err
    assert "\n  -> " in err  # the next step
    assert "Traceback" not in err
    assert sorted(workplace.rglob("*")) == before


def test_every_option_of_run_has_a_wrong_input():
    run = cli.build_parser()._subparsers._group_actions[0].choices["run"]
    tried = {word.partition("=")[0] for args, _ in WRONG for word in args}
    options = {action.option_strings[-1] for action in run._actions if action.option_strings} - {"--help"}
    assert options - tried == set()
