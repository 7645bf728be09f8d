"""`fidelity.json`: how far step times over filled KV lie from step times over really prefilled KV.

decodebench.fidelity/1   First version.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from decodebench.errors import UserError
from decodebench.results.donors import DonorPhase
from decodebench.results.model import Nanoseconds, Record
from decodebench.results.provenance import Engine, Host
from decodebench.results.reading import read

FILE = "fidelity.json"
VERSION = 1


class Arm(Record):
    """One side of a comparison, over the rounds in which both sides were valid."""

    step_time_ns: Nanoseconds
    """Mean of the rounds' means."""
    measured_context: float
    """KV tokens a request read in a step, mean."""
    distinct_tokens: float
    """Different output tokens among those that the requests put out at the same place of their output, mean."""
    distinct_experts: float | None = None
    """Different experts that the requests of a rank were routed to in one step and layer, mean over
    steps and layers. Absent: the server does not tell, which it does with `--enable-return-routed-experts` (vLLM 0.32,
    model runner V2)."""


class RelativeError(Record):
    """Step time filled / step time really prefilled - 1."""

    error: float | None = None
    """Absent: not measured."""
    low: float | None = None
    """Ends of its 95 % interval, not below -1; absent for fewer than five draws of prompts, or such
    that do not agree."""
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


class AtEqualSpeed(RelativeError):
    """Of steps that the machine ran at the same speed on both sides (docs/metrics.md): passes over the same requests in
    pairs, of which those at different speeds weigh next to nothing."""

    draws: int
    """Sets of prompts that were measured on both sides."""
    rounds: int
    """Rounds of these in which both sides were usable; a window may drift."""


class Comparison(RelativeError):
    """A fill against real prefill, at one point and on one server. The error is that of the means."""

    fill: str
    """`constant`, `normal` or `donor`, the last with `:N` where the number of donors was asked for."""
    launch: int
    """Which server start, from 0."""
    rounds: int = 0
    """Rounds in which both were valid."""
    spoiled: int = 0
    """Rounds in which either was not."""
    at_equal_speed: AtEqualSpeed | None = None
    """Absent: no round was usable, or the document is of a version that did not know it."""
    real: Arm | None = None
    filled: Arm | None = None
    reason: str | None = None
    """Why there is no figure, or what spoiled the last round that was spoiled."""

    @property
    def quoted(self) -> RelativeError:
        """The figure to quote: that at equal speed of the machine where it is known."""
        return self if self.at_equal_speed is None else self.at_equal_speed


class PointFidelity(Comparison):
    """A fill against real prefill, measured by `run --fidelity` behind the grid, at one point of it."""

    duration_ns: Nanoseconds = 0
    """What it took, warm-up cohorts included; no measurement contains it."""


class FidelityPoint(Record):
    """One (batch size, context length). An error holds here and nowhere else."""

    batch_size: int
    """Requests decoding together, per data-parallel rank."""
    context_len: int
    comparisons: tuple[Comparison, ...] = ()
    reason: str | None = None
    """Why nothing could be compared here."""


class FidelityDocument(Record):
    """What one `decodebench fidelity` measured."""

    schema_id: Literal["decodebench.fidelity/1"] = Field("decodebench.fidelity/1", alias="schema")
    out: str
    started: datetime
    finished: datetime | None = None
    command: tuple[str, ...]
    """Arguments of the command, secrets replaced."""
    seed: int
    window_steps: int
    precision_asked: float
    passes: int = 1
    """Rounds in which the same prompts are measured."""
    engine: Engine | None = None
    host: Host
    donors: tuple[DonorPhase, ...] = ()
    """One a server start that had a donor fill."""
    points: tuple[FidelityPoint, ...] = ()

    def to_json(self, indent: int | None = 2) -> str:
        return self.model_dump_json(by_alias=True, indent=indent)


def load(directory: Path) -> FidelityDocument:
    """The document of a directory that `decodebench fidelity` wrote. Raises `UserError`."""
    path = directory / FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give the directory of a result") from None
    return read(FidelityDocument, text, str(path), verb="fidelity", version=VERSION)


if __name__ == "__main__":  # python -m decodebench.results.fidelity > docs/schema/fidelity-1.json
    print(json.dumps(FidelityDocument.published_schema(), indent=2))
