"""`run.json`: the versioned document of one run, and how it is read back.

History
-------
decodebench.run/1   First version: engine, host, settings, and points with their repeats.

A version grows by optional fields only; a reader ignores fields that it does not know, so it also reads
documents of a later release with the same version. Whatever changes the meaning of a field, or takes one
away, gets a new version here, with the step that lifts an older document to it. A version that is not
known is refused.
"""

import json
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from decodebench.results.donors import DonorPhase
from decodebench.results.model import Record
from decodebench.results.point import Point
from decodebench.results.provenance import Engine, Host, Settings
from decodebench.results.reading import read

VERSION = 1

Fingerprint = dict[str, JsonValue]
"""What must be equal for measurements to belong to one run; compared field by field (fingerprint.py)."""


class RunStatus(StrEnum):
    RUNNING = "running"  # also what a killed run leaves behind
    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # Ctrl-C or a signal: some points may be `not_run`
    FAILED = "failed"  # the engine died, or cannot do what was asked


class RunDocument(Record):
    """One run: what was measured on what, and how it came out."""

    schema_id: Literal["decodebench.run/1"] = Field("decodebench.run/1", alias="schema")
    out: str
    """Directory of the results, as the run was told."""
    started: datetime
    finished: datetime | None = None
    status: RunStatus
    reason: str | None = None
    """Why the run ended early."""
    cause: str | None = None
    """The text of the exception behind `reason`, if the engine failed of one; may have several lines."""
    command: tuple[str, ...]
    """Arguments of the command, secrets replaced."""
    fingerprint: Fingerprint
    engine: Engine | None = None
    """Absent until a server has answered."""
    host: Host
    settings: Settings
    points: tuple[Point, ...] = ()
    donors: tuple[DonorPhase, ...] = ()
    """One a server start of a run whose fill is `donor`."""
    fidelity_reason: str | None = None
    """Why `--fidelity` was measured at no point."""

    def to_json(self, indent: int | None = 2) -> str:
        """The document as JSON text; with `indent=None` on one line, as `--json` prints it."""
        return self.model_dump_json(by_alias=True, indent=indent)


def parse(text: str | bytes, source: str) -> RunDocument:
    """Read a document; `source` names it in the error. What we cannot read is a `UserError`."""
    return read(RunDocument, text, source, verb="run", version=VERSION)


if __name__ == "__main__":  # python -m decodebench.results.schema > docs/schema/run-1.json
    print(json.dumps(RunDocument.published_schema(), indent=2))
