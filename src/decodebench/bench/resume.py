"""What an earlier part of a run has measured, taken up again from its directory."""

from decodebench.bench.grid import GridPoint
from decodebench.bench.judged import JudgedRepeat, RankLog
from decodebench.bench.point_state import PointPlan, PointState
from decodebench.bench.run_fidelity import is_compared
from decodebench.bench.settings import Settings
from decodebench.bench.window_plan import WindowPlan
from decodebench.errors import UserError
from decodebench.results.parquet import RepeatKey
from decodebench.results.point import Point
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store


class Earlier:
    """The repeats of a stored run, judged again from their steps."""

    def __init__(self, document: RunDocument, store: Store, drafts: int) -> None:
        self._document = document
        self._points = {point.point: point for point in document.points}
        self._judged: dict[RepeatKey, JudgedRepeat] = {}
        for key, ranks in store.repeats():
            point = self._points.get(key.point)
            if point is None or point.window is None:
                continue
            logs = [RankLog(rank.steps, rank.release_step, rank.dp_rank) for rank in ranks]
            self._judged[key] = JudgedRepeat.of(
                key.launch, logs, _plan(point), batch=point.batch_size, drafts=drafts
            )

    def restore(self, state: PointState) -> None:
        """Give a point what it had. Raises `UserError` if it would now be measured over another window."""
        point = self._points.get(state.point.index)
        if point is None or not point.repeat_details:
            return
        if point.window is None or _plan(point) != state.plan.window:
            raise UserError(
                f"{state.point}: the stored repeats were measured over another window than this engine needs",
                "start a new run: the engine has changed since",
            )
        self._give(state, point)

    def is_complete(self, settings: Settings) -> bool:
        """Whether nothing of a stored run is left to measure: another part of it would end at once."""
        document = self._document
        if document.status is not RunStatus.FINISHED:
            return False
        compared = (
            not settings.fidelity
            or document.fidelity_reason is not None
            or any(is_compared(point.fidelity) for point in document.points)
        )
        return compared and not any(self._needs_more(point, settings) for point in document.points)

    def _needs_more(self, point: Point, settings: Settings) -> bool:
        if point.status is Status.DOES_NOT_FIT:
            return False
        if point.window is None:
            return True
        plan = PointPlan(_plan(point), point.blocks_needed, point.blocks_available or 0, None)
        state = PointState(GridPoint(point.point, point.batch_size, point.context_len), plan)
        self._give(state, point)
        return state.needs_more(next_launch(self._document), settings)

    def _give(self, state: PointState, point: Point) -> None:
        for detail in point.repeat_details:
            judged = self._judged.get(state.key(detail.launch, detail.repeat))
            if detail.status is Status.VALID and not detail.discarded and judged is None:
                continue  # its steps were lost with the crash: measure it again
            state.add(detail, judged)
        state.stopped = None
        state.fidelity = point.fidelity


def next_launch(document: RunDocument) -> int:
    """Number of the first server start after those of a document."""
    return 1 + max(
        (detail.launch for point in document.points for detail in point.repeat_details), default=-1
    )


def _plan(point: Point) -> WindowPlan:
    assert point.window is not None, "checked by the caller"
    return WindowPlan(**point.window.model_dump())
