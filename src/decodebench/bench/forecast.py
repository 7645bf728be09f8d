"""What a run would measure, on paper: windows, blocks, whether points fit, and how many engine steps it takes.

The planner builds the engine's KV cache from the model's config and the flags (planner/plan.py); nothing is started.
What only the engine can say (how much memory is left for the cache on a GPU, how long a step takes) is left open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from decodebench.bench.grid import GridPoint
from decodebench.bench.settings import Settings
from decodebench.bench.stopping import FIRST_LOOK
from decodebench.bench.window_plan import PlanError, WindowPlan
from decodebench.engine.command import EngineCommand
from decodebench.engine.preflight import plan_command
from decodebench.errors import UserError
from decodebench.hma import Decision
from decodebench.kv.groups import KVCacheGroup
from decodebench.kv.specs import AttentionSpec
from decodebench.planner.plan import Plan
from decodebench.planner.shape import Shape, point_on

MOST_REASONS = 6  # told of one grid


@dataclass(frozen=True, slots=True)
class PointForecast:
    """One point on paper. `fits` None: it is not known before the engine starts what it builds, or with what memory."""

    point: GridPoint
    window: WindowPlan | None
    needed_blocks: int | None
    usable_blocks: int | None
    fits: bool | None
    reason: str

    @property
    def steps(self) -> int:
        """Engine steps to the first look, warm-up cohort included; 0 for a point that will not be run."""
        if self.window is None or self.fits is False:
            return 0
        return (FIRST_LOOK + 1) * self.window.max_tokens


@dataclass(frozen=True, slots=True)
class Forecast:
    decision: Decision
    points: tuple[PointForecast, ...]
    assumed: tuple[str, ...]

    @property
    def steps(self) -> int:
        return sum(point.steps for point in self.points)


def refuse_hopeless(found: Forecast) -> None:
    """Raises `UserError` where it is known of every point that it does not fit: nothing is worth a start then."""
    if any(point.fits is not False for point in found.points):
        return
    reasons = [f"{point.point}: {point.reason}" for point in found.points]
    if len(reasons) > MOST_REASONS:
        reasons[MOST_REASONS:] = [f"and {len(reasons) - MOST_REASONS} points more"]
    raise UserError(
        "no point fits:\n  " + "\n  ".join(reasons),
        "lower --batch-size or --context-len, or give the engine more after `--`; --dry-run shows what fits",
    )


def forecast(command: EngineCommand, points: Sequence[GridPoint], settings: Settings) -> Forecast:
    """Plan the engine of `command` and every point on it.

    Raises `UserError` (`planner.plan.PlanError`) when the planner does not know the model.
    """
    whole = plan_command(command)
    shape = whole.in_force
    found = tuple(_point(point, settings, whole, shape) for point in points)
    return Forecast(whole.hma, found, whole.assumed)


def _point(point: GridPoint, settings: Settings, whole: Plan, shape: Shape | None) -> PointForecast:
    if shape is None:
        return PointForecast(point, None, None, None, None, whole.hma.reason)
    limits = whole.settings.limits
    try:
        window = WindowPlan.of(
            point.context_len,
            max_model_len=limits.max_model_len,
            periods=periods(shape.pool.groups),
            batches_in_flight=limits.max_concurrent_batches,
            window_steps=settings.window_steps,
        )
    except PlanError as error:
        return PointForecast(point, None, None, None, False, str(error))
    work = replace(whole.settings.workload, output_len=window.max_tokens)
    answer = point_on(shape, work, point.batch_size, window.prompt_len)
    if not shape.memory.is_known:
        unknown = "the memory for the KV cache is not known before the start"
        return PointForecast(point, window, answer.needed_blocks, None, None, unknown)
    return PointForecast(
        point, window, answer.needed_blocks, answer.usable_blocks, answer.fits, answer.reason
    )


def periods(groups: Sequence[KVCacheGroup]) -> tuple[int, ...]:
    """The same of groups on paper as `EngineFacts.periods` of those an engine built."""
    found = set()
    for group in groups:
        if group.kind not in _STATES:
            found.add(group.block_size)
            for spec in group.distinct_specs:
                if isinstance(spec, AttentionSpec) and spec.tokens_per_state > 1:
                    found.add(spec.tokens_per_state)
    return tuple(sorted(found))


_STATES = ("mamba", "circular_buffer")
