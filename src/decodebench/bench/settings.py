"""What was asked of a run, checked; everything the runner needs beside the server."""

from dataclasses import dataclass, field

from decodebench.bench.client import STALL_TIMEOUT_S
from decodebench.bench.donor_set import DonorOptions
from decodebench.bench.stopping import FIRST_LOOK, Stopping
from decodebench.bench.window_plan import WINDOW_STEPS
from decodebench.results.provenance import Fill
from decodebench.results.provenance import Settings as SettingsRecord


@dataclass(frozen=True, slots=True)
class Settings:
    batch_sizes: tuple[int, ...]  # per data-parallel rank
    context_lens: tuple[int, ...]  # tokens
    precision: float = 0.02
    require_precision: bool = False
    max_repeats: int = 40
    launches: int = 1
    seed: int = 0
    max_time_s: float | None = None
    window_steps: int = WINDOW_STEPS
    stall_timeout_s: float = STALL_TIMEOUT_S
    fill: Fill = field(default_factory=Fill)
    donors: DonorOptions | None = None  # of a donor fill
    audit: bool = False  # every fill is read back and proved
    fidelity: bool = False  # the fill is compared with real prefill behind the grid

    @property
    def stopping(self) -> Stopping:
        return Stopping(self.precision, self.max_repeats)

    def record(self) -> SettingsRecord:
        return SettingsRecord(
            batch_sizes=self.batch_sizes,
            context_lens=self.context_lens,
            precision=self.precision,
            require_precision=self.require_precision,
            seed=self.seed,
            fill=self.fill,
            min_repeats=FIRST_LOOK,
            max_repeats=self.max_repeats,
            launches=self.launches,
            max_time_s=self.max_time_s,
            window_steps=self.window_steps,
            audit=self.audit,
            fidelity=self.fidelity,
        )
