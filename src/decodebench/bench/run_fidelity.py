"""`run --fidelity`: behind the grid, the error of the run's own fill against real prefill, at one point.

The point is the largest batch at which a real prefill fits, at its shortest context: there the content of the pages
decides most of a step (which experts, which pages are selected), reading them least.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from decodebench.bench.donor_prompts import Text
from decodebench.bench.donor_set import DonorSet
from decodebench.bench.facts import EngineFacts
from decodebench.bench.fidelity import Mode
from decodebench.bench.fidelity_rounds import Compared, Effort, Rounds, prompts_of, real_misfit
from decodebench.bench.fidelity_verify import kept
from decodebench.bench.point_state import PointState
from decodebench.bench.running import Running
from decodebench.bench.settings import Settings
from decodebench.connector.limits import Limits
from decodebench.report.progress import Progress
from decodebench.results.fidelity import PointFidelity
from decodebench.results.rounds import append, discard

LONGEST_S = 300.0
SHARE = 0.25
"""Of `--max-time`, at most, that is kept for the comparison."""
PRECISION = 0.015
MAX_DRAWS = 40
PASSES = 1
"""Five draws, which an interval takes, are then five rounds."""


def kept_seconds(settings: Settings) -> float:
    """What the grid must leave of `--max-time`, and what the comparison may take at most."""
    if not settings.fidelity:
        return 0.0
    return LONGEST_S if settings.max_time_s is None else min(LONGEST_S, SHARE * settings.max_time_s)


def compared_point(states: Iterable[PointState], limits: Limits) -> PointState | None:
    """Where it is measured; None if a real prefill fits at no point."""
    fitting = [state for state in states if real_misfit(state.plan, state.point.batch_size, limits) is None]
    return max(fitting, key=lambda state: (state.point.batch_size, -state.point.context_len), default=None)


def is_compared(found: PointFidelity | None) -> bool:
    """Whether a comparison came far enough not to be made again by a resumed run."""
    return found is not None and found.quoted.half_width is not None


def compare_with_real_prefill(
    running: Running,
    facts: EngineFacts,
    settings: Settings,
    states: Sequence[PointState],
    donors: DonorSet | None,
    read: Text | None,
    progress: Progress,
    *,
    launch: int,
    name: str,
    directory: Path,
    on_round: Callable[[], None],
) -> PointState | None:
    """Measure at the point it returns; None if a real prefill fits at none of `states`.

    Every round is kept in `directory` (results/rounds.py); then the point's `fidelity` knows of it, and `on_round` is
    told. The first round takes the place of what an earlier part of the run had compared; without one that stands.

    `read`: what prompts are made of, a text that no donor has read; None: random ids.
    """
    state = compared_point(states, facts.limits)
    if state is None:
        return None
    assert state.plan.window is not None, "a point that fits has a window"
    begun = time.monotonic()
    seconds = kept_seconds(settings)
    rounds = Rounds(
        running,
        facts,
        prompts_of(running.target, facts, read, settings.seed),
        (Mode(settings.fill.content, donors),),
        Effort(PRECISION, MAX_DRAWS, PASSES, begun + seconds),
        progress,
        name=f"{name}-fidelity",
        launch=launch,
        seed=settings.seed,
    )

    def tell(point: Compared) -> None:
        (found,) = rounds.comparisons(point)
        reason = f"no round ended within {seconds:g} s" if not point.rounds else found.reason
        state.fidelity = PointFidelity(
            **{**dict(found), "reason": reason}, duration_ns=round((time.monotonic() - begun) * 1e9)
        )
        on_round()

    def keep(point: Compared) -> None:
        if len(point.rounds) == 1:
            for each in states:
                each.fidelity = None
            discard(directory)
        append(directory, kept(point.point, launch, point.rounds[-1]))
        tell(point)

    compared = Compared(state.point, state.plan.window)
    rounds.run([compared], keep)
    if not compared.rounds and state.fidelity is None:
        tell(compared)
    return state
