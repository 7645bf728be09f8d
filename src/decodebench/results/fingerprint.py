"""May these measurements belong to one run? Only if everything that moves a step time is equal.

The fingerprint is a flat mapping of names to plain values (model, vLLM version, flags, fill, seed, device,
...); what goes into it is the runner's choice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from decodebench.errors import UserError

_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    field: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.field}: {self.before} before, {self.now} now"


def differences(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> list[Difference]:
    """The fields on which the two disagree (or that only one of them has), in the order of `now`."""
    fields = [*now, *(field for field in before if field not in now)]
    shown = [(field, _shown(before, field), _shown(now, field)) for field in fields]
    return [Difference(field, old, new) for field, old, new in shown if old != new]


def require_equal(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue], source: str) -> None:
    """Refuse to continue `source` with a run that would measure something else."""
    found = differences(before, now)
    if not found:
        return
    lines = "".join(f"\n  {difference}" for difference in found)
    message = f"{source}: cannot resume, this run would measure something else:{lines}"
    raise UserError(message, "repeat the first run's command with --resume, or start a new directory")


def _shown(fingerprint: Mapping[str, JsonValue], field: str) -> str:
    if field not in fingerprint:
        return _ABSENT
    return json.dumps(fingerprint[field], sort_keys=True)
