"""A connector's source tells what it supports, and none of its code runs."""

import sys
from pathlib import Path

import pytest

from decodebench.hma.facts import ClassMissing, ConnectorClass, KnownBy, Unknown
from decodebench.hma.modules import find_source
from decodebench.hma.source import read_class

from .conftest import BASES


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "declares", "finishes", "is_multi"),
    [
        ("Yes", True, True, False),
        ("No", False, False, False),
        ("DuckTyped", False, True, False),
        ("SingleGroup", True, False, False),
        ("Stub", True, False, False),
        ("Fleet", True, True, True),
    ],
)
def test_bases_and_hooks_are_read(
    connectors: str, name: str, declares: bool, finishes: bool, is_multi: bool
) -> None:
    assert read_class(connectors, name) == ConnectorClass(
        name=name,
        declares_hma=declares,
        finishes_all_groups=finishes,
        is_multi=is_multi,
        known_by=KnownBy.SOURCE,
    )
    assert connectors not in sys.modules


def test_names_are_followed_through_aliases_packages_and_imports(root: Path) -> None:
    hook = "    def request_finished_all_groups(self, request, block_ids): ...\n"
    (root / "pkg").mkdir()
    (root / "pkg" / "__init__.py").write_text(
        "from .deep import *\nPublic = Inner\nfrom .deep.leaf import Inner\n"
    )
    (root / "pkg" / "deep").mkdir()
    (root / "pkg" / "deep" / "__init__.py").write_text("from .leaf import Starred\n")
    (root / "pkg" / "deep" / "leaf.py").write_text(
        f"import typing as t\n{BASES}from .. import mixins as m\n"
        "class Inner(m.Hook, KVConnectorBase_V1, t.Generic[t.T]): ...\nclass Starred(Inner): ...\n"
    )
    (root / "pkg" / "mixins.py").write_text(f"{BASES}class Hook(SupportsHMA):\n{hook}")
    for name in ("Public", "Starred"):
        found = read_class("pkg", name)
        assert isinstance(found, ConnectorClass)
        assert found.declares_hma
        assert found.finishes_all_groups
    assert "pkg" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        "from b import X\n",
        "class X(Y): ...\nclass Y(X): ...\n",
        "X = X\n",
        "from b import *\n",
    ],
)
def test_circles_end(root: Path, text: str) -> None:
    write(root, a=text, b="from a import X\n")
    with pytest.raises(ClassMissing):
        read_class("a", "X")


@pytest.mark.parametrize(
    "text",
    [
        "def __getattr__(name): ...\n",
        "X = make()\n",
        "from not_here import X\n",
        "class X(make()): ...\n",
        "from not_here import Base\nclass X(Base): ...\n",
        "import not_here\nclass X(not_here.sub.Base): ...\n",
        "class X(:\n",
    ],
)
def test_what_cannot_be_followed_is_unknown_not_no(root: Path, text: str) -> None:
    write(root, a=text)
    assert isinstance(read_class("a", "X"), Unknown)


def test_a_module_without_the_class_is_told_from_a_module_that_is_not_there(root: Path) -> None:
    write(root, a="class Y: ...\n")
    with pytest.raises(ClassMissing, match="no class 'X'"):
        read_class("a", "X")
    assert isinstance(read_class("a.b", "X"), Unknown)
    assert isinstance(read_class("not.a path", "X"), Unknown)


def test_finding_a_module_imports_none_of_its_parents(root: Path) -> None:
    (root / "loud").mkdir()
    (root / "loud" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (root / "loud" / "inner.py").write_text("")
    assert find_source("loud.inner") == root / "loud" / "inner.py"
    assert find_source("loud.missing") is None
    assert find_source("vllm_is_not_this.deep") is None
