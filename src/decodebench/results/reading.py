"""A stored document read back: of the kind and version that is expected, whole, and of the right types."""

import json
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from decodebench.errors import UserError
from decodebench.results.model import Record

Document = TypeVar("Document", bound=Record)


def read(kind: type[Document], text: str | bytes, source: str, *, verb: str, version: int) -> Document:
    """The document that `decodebench VERB` wrote. What we cannot read is a `UserError`, in which `source` names it."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source}: not JSON ({error})", "the file is damaged; measure again") from None
    _check_version(raw, source, verb, version)
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        where, first = first_fault(error)
        message = f"{source}: field {where}: {first['msg']} (found {first['input']!r:.80})"
        raise UserError(message, "the file is damaged or was edited; measure again") from None


def first_fault(error: ValidationError) -> tuple[str, ErrorDetails]:
    """The field, dotted (empty: the whole), and what is wrong with it."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, first["loc"])), first


def _check_version(raw: object, source: str, verb: str, known: int) -> None:
    expected = f"decodebench.{verb}"
    name = raw.get("schema") if isinstance(raw, dict) else None
    family, _, version = name.partition("/") if isinstance(name, str) else ("", "", "")
    if family != expected or not (version.isascii() and version.isdigit()):
        found = "no `schema` field" if name is None else f"schema {name!r:.80}"
        raise UserError(
            f"{source}: not a result of decodebench {verb} ({found}, expected {expected}/{known})"
        )
    if int(version) != known:
        message = f"{source}: schema {name}, but this decodebench reads {expected}/1 to {expected}/{known}"
        raise UserError(message, "install a newer decodebench")
