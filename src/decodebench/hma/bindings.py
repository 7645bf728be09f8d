"""What the top level of a source file binds each name to: a class statement, an import, an alias, or something made
when the file runs.
"""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Imported:
    """`from module import name`; `name` is None for `import module`."""

    module: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Alias:
    """`this = name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Made:
    """Made when the module runs: a call, a function, a subscript."""


Binding = ast.ClassDef | Imported | Alias | Made


@dataclass(frozen=True, slots=True)
class Bindings:
    """Names of one module. `stars` are the modules it star-imports, `lazy` says that it has a module `__getattr__`."""

    names: dict[str, Binding]
    stars: tuple[str, ...]
    lazy: bool


@lru_cache(maxsize=256)
def read_bindings(path: Path, module: str) -> Bindings:
    """Parse one file; raises SyntaxError, UnicodeDecodeError or OSError."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: dict[str, Binding] = {}
    stars: list[str] = []
    for statement in _statements(ast.parse(path.read_text(encoding="utf-8")).body):
        match statement:
            case ast.ClassDef():
                names[statement.name] = statement
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names[statement.name] = Made()
            case ast.Assign(targets=targets, value=value):
                bound = Alias(value.id) if isinstance(value, ast.Name) else Made()
                names.update({t.id: bound for t in targets if isinstance(t, ast.Name)})
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                names[name] = Alias(value.id) if isinstance(value, ast.Name) else Made()
            case ast.Import(names=imported):
                for alias in imported:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = Imported(alias.name if alias.asname else top, None)
            case ast.ImportFrom(names=imported):
                source = _absolute(package, statement)
                stars.extend(source for alias in imported if alias.name == "*")
                names.update(
                    {a.asname or a.name: Imported(source, a.name) for a in imported if a.name != "*"}
                )
    return Bindings(names, tuple(stars), "__getattr__" in names)


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Top-level statements, those inside `if`, `try` and `with` included; of alternatives the first one wins."""
    found: list[ast.stmt] = []
    for statement in body:
        match statement:
            case ast.If(body=then, orelse=other):
                found = _statements(other) + found + _statements(then)
            case ast.Try(body=then, orelse=other, handlers=handlers):
                for handler in handlers:
                    found = _statements(handler.body) + found
                found += _statements(then) + _statements(other)
            case ast.With(body=then):
                found += _statements(then)
            case _:
                found.append(statement)
    return found


def _absolute(package: str, statement: ast.ImportFrom) -> str:
    """The module that a possibly relative import names."""
    if not statement.level:
        return statement.module or ""
    parents = package.split(".")
    base = parents[: len(parents) - statement.level + 1]
    return ".".join([*base, statement.module] if statement.module else base)
