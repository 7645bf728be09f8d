"""`--with-connector`: on the command line and in a file, and what it cannot be combined with."""

import json
import shlex

import pytest

from decodebench.cli.main import build_parser, main
from decodebench.cli.run_arguments import read

OFFLOADING = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
FILES = {
    "texts.json": {"with-connector": [json.dumps(OFFLOADING), json.dumps(NIXL)]},
    "tables.json": {"with-connector": [OFFLOADING, NIXL]},
    "run.toml": '[[with-connector]]\nkv_connector = "OffloadingConnector"\nkv_role = "kv_both"\n'
    '[[with-connector]]\nkv_connector = "NixlConnector"\nkv_role = "kv_both"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_connectors_as_texts_or_tables(name, tmp_path):
    content = FILES[name]
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    args = build_parser().parse_args(["run", "--config", str(path)])
    args.engine_args, args.argv = (), ("run", "--config", str(path))
    asked = read(args).args
    assert [json.loads(text) for text in asked.with_connector] == [OFFLOADING, NIXL]
    assert asked.with_connector_first == []


@pytest.mark.parametrize("option", ["--with-connector", "--with-connector-first"])
@pytest.mark.parametrize("verb", ["run", "serve"])
def test_what_is_no_transfer_config_is_one_message_and_exit_code_2(verb, option, capsys):
    assert main([verb, option, '{"kv_connector": "NixlConnector"']) == 2
    said = capsys.readouterr().err
    assert said.count("decodebench:") == 1
    assert f"{option} '" in said
    assert "not JSON" in said
    assert "-> quote the whole object" in said


def test_a_server_that_runs_already_takes_no_other_connector(capsys):
    assert main(["run", "--url", "http://127.0.0.1:1", "--with-connector", json.dumps(NIXL)]) == 2
    assert "decodebench serve --with-connector" in capsys.readouterr().err


def test_a_connector_that_the_engine_does_not_have_is_refused_before_anything_starts(capsys):
    pytest.importorskip("vllm", reason="the register of the installed vLLM")
    nope = json.dumps(NIXL | {"kv_connector": "Nope"})
    assert main(["serve", "--with-connector", nope]) == 2
    assert "connectors[1]: vLLM" in capsys.readouterr().err


def test_print_shows_the_composition_and_says_who_wins(capsys):
    pytest.importorskip("vllm", reason="looks for its connectors")
    assert main(["serve", "--print", "--with-connector-first", json.dumps(OFFLOADING)]) == 0
    printed = capsys.readouterr()
    words = shlex.split(printed.out)
    config = json.loads(words[words.index("--kv-transfer-config") + 1])
    names = [child["kv_connector"] for child in config["kv_connector_extra_config"]["connectors"]]
    assert names == ["OffloadingConnector", "DecodeBenchConnector"]
    assert "a point is invalid, and says so, where OffloadingConnector has some" in printed.err
