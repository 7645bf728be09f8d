"""What a CPU shim is: one small repair of vLLM's CPU build, without which a built-in model does not decode on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Shim:
    """A change to one module of vLLM, made right after that module has been imported.

    `module` is the module changed and `repair` changes it. `applies` says, from the environment of the server alone,
    whether the shim is put in place; `is_needed` looks at the imported module and says whether it has the fault. A shim
    that the installed vLLM no longer needs does nothing, and its test fails to say that it can go.
    """

    name: str
    module: str
    is_needed: Callable[[ModuleType], bool]
    repair: Callable[[ModuleType], None]
    applies: Callable[[Mapping[str, str]], bool] = lambda env: True

    def mend(self, module: ModuleType) -> None:
        """Repair the module if it has the fault."""
        if self.is_needed(module):
            self.repair(module)
