"""`decodebench recipes` and `decodebench cache`: what they print is what there is."""

import json
from pathlib import Path

import pytest

from decodebench.cli.main import main
from decodebench.engine import recipes
from decodebench.engine.recipes import cache


def test_every_recipe_is_listed_with_all_its_groups(capsys: pytest.CaptureFixture[str]):
    assert main(["recipes"]) == 0
    blocks = {block.split()[0]: block for block in capsys.readouterr().out.split("\n\n")}
    assert tuple(blocks) == recipes.names()
    for name, block in blocks.items():
        recipe = recipes.get(name)
        assert f"{len(recipe.groups)} KV cache group" in block
        assert all(kind in block for kind in recipe.kinds)
        assert all(shim in block for shim in recipe.shims)
    assert [name for name, block in blocks.items() if "(default)" in block] == [recipes.DEFAULT]


def test_json_list_is_one_document_with_what_a_server_is_started_with(capsys: pytest.CaptureFixture[str]):
    assert main(["recipes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "decodebench.recipes/1"
    for entry in document["recipes"]:
        recipe = recipes.get(entry["name"])
        assert entry["vllm_args"] == list(recipe.vllm_args)
        assert entry["env"] == recipe.env
        assert len(entry["groups"]) == len(recipe.groups)


def test_cache_lists_and_cleans_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(cache.ROOT, str(tmp_path))
    entry = tmp_path / "models" / "tiny-llama-0123456789ab"
    entry.mkdir(parents=True)
    (entry / "model.safetensors").write_bytes(bytes(2_000_000))
    assert main(["cache", "list"]) == 0
    assert f"2.0 MB  {entry}" in capsys.readouterr().out
    assert main(["cache", "clean"]) == 0
    assert "1 built-in models removed" in capsys.readouterr().out
    assert not entry.exists()
    assert main(["cache", "list"]) == 0
    assert "0 built-in models in the cache" in capsys.readouterr().out


def test_cache_wants_to_know_what_to_do(capsys: pytest.CaptureFixture[str]):
    assert main(["cache", "burn"]) == 2
    assert "list" in capsys.readouterr().err
