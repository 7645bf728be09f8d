"""The shims repair what they say, only where it is broken, and say when the installed vLLM no longer needs them."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from decodebench.engine import cpu_shims, distribution, recipes
from decodebench.engine.cpu_shims.after_import import change_after_import

on_cpu_build = pytest.mark.skipif(not distribution.is_cpu_build(), reason="vLLM's CPU build is not installed")

EXAMINE = """
import importlib, json, os
from decodebench.engine import cpu_shims, distribution
distribution.answer_for_vllm()
found = {}
for shim in cpu_shims.SHIMS:
    module = importlib.import_module(shim.module)
    before = shim.is_needed(module)
    shim.mend(module)
    found[shim.name] = [before, shim.is_needed(module)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, list[bool]]:
    """By shim: does the installed vLLM have the fault, and does it still once mended?"""
    done = subprocess.run(
        [sys.executable, "-c", EXAMINE],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@on_cpu_build
@pytest.mark.parametrize("name", [shim.name for shim in cpu_shims.SHIMS])
def test_shim_is_still_needed_else_it_can_go(name: str, found: dict[str, list[bool]]):
    assert found[name][0], f"the installed vLLM no longer needs the shim {name}: it can go"


@on_cpu_build
@pytest.mark.parametrize("name", [shim.name for shim in cpu_shims.SHIMS])
def test_shim_repairs_the_fault(name: str, found: dict[str, list[bool]]):
    assert not found[name][1]


@on_cpu_build
def test_active_names_the_shims_that_the_environment_asks_for():
    assert "triton-interpreted" not in cpu_shims.active({})
    assert cpu_shims.active({"TRITON_INTERPRET": "1"}) == [shim.name for shim in cpu_shims.SHIMS]


def test_no_shim_is_active_on_another_build(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distribution, "is_cpu_build", lambda: False)
    assert cpu_shims.active({"TRITON_INTERPRET": "1"}) == []


@on_cpu_build
@pytest.mark.parametrize("name", recipes.names())
def test_shims_that_a_recipe_needs_are_active_under_its_environment(name: str):
    recipe = recipes.get(name)
    assert set(recipe.shims) <= set(cpu_shims.active(recipe.env))


@pytest.fixture
def module_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "broken_module.py").write_text("value = 'broken'\n")
    (tmp_path / "reads_broken_module.py").write_text("from broken_module import value as seen\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("broken_module", "reads_broken_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "broken_module"


def mend(module: ModuleType) -> None:
    module.value = "mended"  # type: ignore[attr-defined]


def test_module_is_changed_before_its_importer_reads_it(module_on_disk: str):
    change_after_import(module_on_disk, mend)
    assert module_on_disk not in sys.modules, "imported earlier than needed"
    assert importlib.import_module("reads_broken_module").seen == "mended"


def test_module_imported_before_is_changed_at_once(module_on_disk: str):
    module = importlib.import_module(module_on_disk)
    change_after_import(module_on_disk, mend)
    assert module.value == "mended"


def test_changed_module_keeps_its_source_and_origin(module_on_disk: str):
    change_after_import(module_on_disk, mend)
    module = importlib.import_module(module_on_disk)
    assert module.__spec__.loader.get_source(module_on_disk) == "value = 'broken'\n"
    assert Path(module.__file__).name == "broken_module.py"
