"""May the hybrid KV cache manager stay on for this transfer config? Decision, reasons, connector lookup."""

from decodebench.hma.config import TransferConfigError
from decodebench.hma.decide import CannotTell, decide, supports_hma_config
from decodebench.hma.decision import Decision, ModelFacts, Verdict

__all__ = [
    "CannotTell",
    "Decision",
    "ModelFacts",
    "TransferConfigError",
    "Verdict",
    "decide",
    "supports_hma_config",
]
