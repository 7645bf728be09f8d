"""A package that cannot be imported is found; one that can is left alone."""

import sys
from pathlib import Path

import pytest

from decodebench.engine.repair import find_broken


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder on the path of this process and of those it starts, to install packages into."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def install(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        metadata = tmp_path / f"{name}-7.1.dist-info/METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 7.1\n")

    return install


def test_a_package_that_fails_to_import_is_found_with_its_reason(site):
    site("brokenvision", "raise RuntimeError('operator torchvision::nms does not exist')")
    (broken,) = find_broken(("brokenvision",))
    assert (broken.name, broken.version) == ("brokenvision", "7.1")
    assert broken.reason == "RuntimeError: operator torchvision::nms does not exist"


def test_a_package_that_ends_the_process_is_found(site):
    site("crashingvision", "import os; os.abort()")
    (broken,) = find_broken(("crashingvision",))
    assert "-6" in broken.reason


def test_packages_that_work_or_are_not_installed_are_not_named(site):
    site("goodvision", "")
    assert list(find_broken(("goodvision", "absentvision"))) == []
