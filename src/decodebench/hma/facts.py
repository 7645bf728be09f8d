"""What the decision needs to know about one connector class, however it was learnt."""

from dataclasses import dataclass
from enum import StrEnum


class KnownBy(StrEnum):
    """Where the facts about a class come from, best first."""

    CLASS = "class"  # the imported class was asked
    SOURCE = "source"  # its source file was read, nothing was imported
    TABLE = "table"  # the table of known connectors (hma/known.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorClass:
    """One connector class, as far as the hybrid manager is concerned.

    `declares_hma`: derives from vLLM's `SupportsHMA`, which is all that vLLM asks. `finishes_all_groups`: defines
    `request_finished_all_groups`, which that base leaves abstract; a class that declares support without it cannot be
    constructed. `is_multi`: is `MultiConnector` or derives from it, so that its children decide.
    """

    name: str
    declares_hma: bool
    finishes_all_groups: bool
    is_multi: bool = False
    known_by: KnownBy

    @property
    def broken(self) -> bool:
        return self.declares_hma and not self.finishes_all_groups


@dataclass(frozen=True, slots=True)
class Unknown:
    """The class could not be learnt without importing code; that is not the same as "no"."""

    reason: str


class ClassMissing(Exception):
    """The engine would not find the class either: the name is wrong, not merely unknown here."""
