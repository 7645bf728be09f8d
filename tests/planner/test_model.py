"""What a user may call a model."""

import json
from pathlib import Path

import pytest

from decodebench.engine import recipes
from decodebench.errors import UserError
from decodebench.models import ConfigError
from decodebench.planner.model import find_model

from .configs import llama


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def test_a_directory_a_file_and_a_parsed_config_are_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    directory, file, parsed = (
        find_model(tmp_path),
        find_model(str(tmp_path / "config.json")),
        find_model(llama()),
    )
    assert directory.config.outer == file.config.outer == parsed.config.outer


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_brings_its_engine_options(name: str) -> None:
    named = find_model(name)
    assert named.is_recipe
    assert "--max-model-len" in named.engine_args


def test_a_hub_id_is_read_from_the_local_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hf" / "hub" / "models--org--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(llama()))
    assert find_model("org/model").config.architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org/not-cached", "not in the local cache"),
        ("./missing", "no such file"),
        ("/no/such/config.json", "no such file"),
        ("missing.json", "no such file"),
        ("tiny-nonsense", "neither a directory"),
        ("", "neither a directory"),
    ],
)
def test_what_is_no_model_is_said(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_model(name)


def test_an_empty_directory_has_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        find_model(tmp_path)
