"""`rounds.jsonl` of `decodebench fidelity` or `run --fidelity`: what its cohorts measured, one line of JSON a round.

A line is on disk before the document tells of its round, so that a killed run lacks none it tells of.
"""

import os
from pathlib import Path

from pydantic import Field, PositiveInt, ValidationError

from decodebench.errors import UserError
from decodebench.results.files import storage_errors
from decodebench.results.model import Record
from decodebench.results.reading import first_fault

FILE = "rounds.jsonl"


class MeasuredCohort(Record):
    """One cohort that counts."""

    durations_ns: tuple[tuple[PositiveInt, ...], ...]
    """Of the steps of its window, one row a data-parallel rank."""
    measured_context: float
    distinct_tokens: float
    distinct_experts: float | None = None
    drifting: str | None = None
    """How it drifts: it then counts at equal speed of the machine only."""


class MeasuredRound(Record):
    """One round of a point: a cohort of every arm, in `cohorts` or in `spoiled`."""

    batch_size: int
    context_len: int
    launch: int
    draw: int
    """Which draw of prompts all of them had, from 0, counted by point and launch."""
    cohorts: dict[str, MeasuredCohort]
    """By arm: `real prefill`, or the fill as the document names it."""
    spoiled: dict[str, str] = Field(default_factory=dict)
    """By arm: why its cohort does not count."""


def append(directory: Path, measured: MeasuredRound) -> None:
    """Raises `UserError` if the disk is full or gone."""
    path = directory / FILE
    with storage_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(measured.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def discard(directory: Path) -> None:
    """Before rounds are measured anew, if there were any."""
    path = directory / FILE
    with storage_errors(path):
        path.unlink(missing_ok=True)


def load(directory: Path) -> list[MeasuredRound]:
    """All whole lines, in order: the last one of a run that was killed may be a part. Raises `UserError`."""
    path = directory / FILE
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UserError(f"{path}: missing", "results of before it was written cannot be verified") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})", "the file is damaged; measure again") from None
    return [_read(line, f"{path}, line {number}") for number, line in enumerate(lines[:-1], start=1)]


def _read(line: str, where: str) -> MeasuredRound:
    try:
        return MeasuredRound.model_validate_json(line, strict=True)
    except ValidationError as error:
        field, first = first_fault(error)
        raise UserError(
            f"{where}: {field + ': ' if field else ''}{first['msg']}", "the file is damaged; measure again"
        ) from None
