"""Read what a connector class declares from its source file. Nothing is imported, so no code of the file runs.

The reader follows names the way Python would: a class statement, an alias, an import from another module, a star
import; then the bases of the class, one file after another, until it meets vLLM's own interface classes. What it
cannot follow (a class made by a call, a lazy module `__getattr__`, a file that is not there) is `Unknown`.
"""

import ast
import builtins
import sys
from dataclasses import dataclass, field

from decodebench.hma.bindings import Alias, Bindings, Imported, read_bindings
from decodebench.hma.facts import ClassMissing, ConnectorClass, KnownBy, Unknown
from decodebench.hma.modules import find_source

ALL_GROUPS_HOOK = "request_finished_all_groups"
MAX_HOPS = 64
"""Names followed for one class; a longer chain of imports or bases goes in circles."""


@dataclass(frozen=True, slots=True)
class _Class:
    module: str
    node: ast.ClassDef


@dataclass(frozen=True, slots=True)
class _Interface:
    """One of vLLM's own interface classes, known by its name."""

    name: str


_Found = _Class | _Interface | Unknown


def read_class(module: str, name: str) -> ConnectorClass | Unknown:
    """The facts about class `name` of `module`; raises `ClassMissing` if the module surely lacks it."""
    walk = _Walk()
    try:
        found = walk.resolve(module, name)
        if isinstance(found, Unknown):
            return found
        walk.visit(found)
    except (SyntaxError, UnicodeDecodeError, OSError) as error:
        return Unknown(f"the source of module {module!r} cannot be read ({error})")
    if walk.unread and not (walk.declares_hma and walk.finishes_all_groups):
        return Unknown(f"{name} of {module!r} derives from {walk.unread[0]}, which cannot be read here")
    return ConnectorClass(
        name=name,
        declares_hma=walk.declares_hma,
        finishes_all_groups=walk.finishes_all_groups,
        is_multi=walk.is_multi,
        known_by=KnownBy.SOURCE,
    )


@dataclass(slots=True)
class _Walk:
    """One class and its bases being read: what they said so far, what could not be read, how far it has gone."""

    declares_hma: bool = False
    finishes_all_groups: bool = False
    is_multi: bool = False
    unread: list[str] = field(default_factory=list)
    hops: int = 0

    def visit(self, found: _Class | _Interface) -> None:
        """Note what a class says, then what its bases say."""
        if isinstance(found, _Interface):
            self._note_interface(found.name)
            return
        if found.module.startswith("vllm.") and found.node.name == "MultiConnector":
            self.is_multi = True
        hooks = [
            item
            for item in found.node.body
            if isinstance(item, ast.FunctionDef) and item.name == ALL_GROUPS_HOOK
        ]
        if hooks and not is_stub(hooks[-1]):
            self.finishes_all_groups = True
        for base in found.node.bases:
            target = self._resolve_base(found.module, base)
            if isinstance(target, Unknown):
                self.unread.append(ast.unparse(base))
            elif target is not None:
                self.visit(target)

    def _note_interface(self, name: str) -> None:
        multi = name == "MultiConnector"
        self.is_multi |= multi
        self.declares_hma |= multi or name == "SupportsHMA"
        self.finishes_all_groups |= multi  # the hook of SupportsHMA itself is abstract and does not count

    def resolve(self, module: str, name: str) -> _Found:
        """Follow `name` of `module` to the class behind it."""
        self.hops += 1
        if self.hops > MAX_HOPS:
            raise ClassMissing(f"the imports or bases of {name!r} in {module!r} go in circles")
        if module.startswith("vllm.") and _is_interface(module, name):
            return _Interface(name)
        source = _bindings(module)
        if source is None:
            return Unknown(f"module {module!r} is not installed here")
        bound = source.names.get(name)
        match bound:
            case ast.ClassDef():
                return _Class(module, bound)
            case Imported(module=origin, name=str(original)):
                return self.resolve(origin, original)
            case Alias(name=other):
                return self.resolve(module, other)
            case None:
                return self._resolve_unbound(module, name, source)
        return Unknown(f"{name!r} of module {module!r} is made when the module runs")

    def _resolve_unbound(self, module: str, name: str, source: Bindings) -> _Found:
        unknown: Unknown | None = None
        for star in source.stars:
            try:
                found = self.resolve(star, name)
            except ClassMissing:
                continue
            if not isinstance(found, Unknown):
                return found
            unknown = unknown or found
        if unknown is not None:
            return unknown
        if source.lazy:
            return Unknown(f"module {module!r} makes its names when they are asked for")
        raise ClassMissing(f"module {module!r} has no class {name!r}")

    def _resolve_base(self, module: str, base: ast.expr) -> _Found | None:
        """The class that a base expression names; None for one that has nothing to say (builtins, standard library)."""
        if isinstance(base, ast.Subscript):  # Generic[T]
            return self._resolve_base(module, base.value)
        source = _bindings(module)
        assert source is not None, f"{module} was read before"
        if isinstance(base, ast.Name):
            bound = source.names.get(base.id)
            if bound is None and hasattr(builtins, base.id) and not source.stars:
                return None
            if isinstance(bound, Imported) and _is_standard(bound.module):
                return None
            return self.resolve(module, base.id)
        head, _, _ = ast.unparse(base).partition(".")
        bound = source.names.get(head)
        if not isinstance(base, ast.Attribute) or not isinstance(bound, Imported):
            return Unknown(ast.unparse(base))
        owner = bound.module if bound.name is None else f"{bound.module}.{bound.name}"
        owner += ast.unparse(base.value).removeprefix(head)
        return None if _is_standard(owner) else self.resolve(owner, base.attr)


def is_stub(hook: ast.FunctionDef) -> bool:
    """Whether a method is there only to say that it is not: abstract, or nothing but `raise NotImplementedError`."""
    if any(ast.unparse(decorator).endswith("abstractmethod") for decorator in hook.decorator_list):
        return True
    body = [
        item
        for item in hook.body
        if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    return len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])


def _is_interface(module: str, name: str) -> bool:
    if name in ("SupportsHMA", "KVConnectorBase_V1", "KVConnectorBase"):
        return True
    return name == "MultiConnector" and find_source(module) is None  # read it where vLLM is installed


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _bindings(module: str) -> Bindings | None:
    path = find_source(module)
    return None if path is None else read_bindings(path, module)
