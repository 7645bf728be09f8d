"""How far a starting server is, read from what it logs.

vLLM has no other way to tell before it answers. The phases are what a user waits for: `starting` (imports, config),
`loading` (weights), `compiling` (torch.compile, kernel warm-up, graph capture, KV cache), `ready` (answers /health).
The sentences are those of vLLM 0.32 `v1/worker/*model_runner.py`, `compilation/` and `model_executor/model_loader/`;
where a later version words them otherwise a phase is shown late, and nothing else changes.
"""

from dataclasses import dataclass
from typing import Literal

PhaseName = Literal["starting", "loading", "compiling", "ready"]

_ORDER: tuple[PhaseName, ...] = ("starting", "loading", "compiling", "ready")
_SENTENCES: tuple[tuple[str, PhaseName], ...] = (
    ("Starting to load model", "loading"),
    ("Loading weights took", "compiling"),
    ("Model loading took", "compiling"),
    ("Warming up model", "compiling"),
    ("Capturing CUDA graphs", "compiling"),
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the start, and the seconds from the start of the process to its beginning."""

    name: PhaseName
    seconds: float


def phase_of(line: str) -> PhaseName | None:
    """The phase that a line of the server's log shows to have begun, if it shows any."""
    return next((name for sentence, name in _SENTENCES if sentence in line), None)


def is_later(name: PhaseName, than: PhaseName) -> bool:
    return _ORDER.index(name) > _ORDER.index(than)
