"""What `decide` answers: the verdict, its reason, and what would change it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`impossible`: this model cannot run with the manager off, and it cannot be on. `error`: the engine refuses the
    configuration, whatever the model. `cannot tell`: a connector's code would have to be imported to know."""

    ON = "on"
    OFF = "off"
    IMPOSSIBLE = "impossible"
    CANNOT_TELL = "cannot tell"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the decision must know about the model.

    `off_error`: why it cannot run with the manager off ("" if it can): state layers beside attention. `chunked_local`:
    it has chunked local attention (`attention_chunk_size`). `drafter`: it runs with a drafter that reads the target's
    hidden states (vLLM's `SpeculativeConfig.use_eagle`: eagle, eagle3, mtp, dflash, dspark).
    """

    off_error: str = ""
    chunked_local: bool = False
    drafter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict and why.

    `path` is the connector that forces it ("" is the config itself, None: no connector does). `flag` would change the
    verdict. `serve_flags` are what a launcher adds to the engine's command line: to keep the manager on where it can
    be, or off where the engine would turn it on and die. `assumed` is what was taken for granted as nobody said it.
    """

    verdict: Verdict
    reason: str
    path: str | None = None
    flag: str | None = None
    serve_flags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def stays_on(self) -> bool:
        return self.verdict is Verdict.ON
