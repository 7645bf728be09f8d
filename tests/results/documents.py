"""Step logs, documents and whole result directories as a run writes them, for the tests of results, report and show."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

from decodebench.bench.judged import JudgedRepeat, RankLog, point_figures
from decodebench.bench.window_plan import WindowPlan
from decodebench.results.parquet import RepeatKey
from decodebench.results.point import PlannedWindow, Point
from decodebench.results.provenance import Engine, Group, Host, Settings
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.steps import STEP_COLUMNS, Steps
from decodebench.results.store import Store

CONTEXT = 1000
PLAN = WindowPlan.of(CONTEXT, max_model_len=4096)
RELEASE = 7  # step in which a cohort is released
FINGERPRINT = {"model": "tiny-gemma3", "seed": 0, "engine_args": ["--max-num-seqs", "8"]}


def cohort_steps(batch: int, step_ns: int, seed: int = 0) -> Steps:
    """The log of one cohort that decodes `batch` requests in every step, each taking about `step_ns`."""
    random, done = Random(seed), 1_000_000
    rows = []
    for number in range(PLAN.max_tokens):
        scheduled, context = done + 10, PLAN.prompt_len + number
        done += round(step_ns * random.uniform(0.95, 1.05))
        rows.append(
            {
                "step": RELEASE + number,
                "scheduled_ns": scheduled,
                "done_ns": done,
                "num_reqs": batch,
                "decode_tokens": batch,
                "context_tokens": batch * context,
                "context_min": context,
                "context_max": context,
            }
        )
    return {name: [row.get(name, 0) for row in rows] for name in STEP_COLUMNS}


def judged(
    batch: int, seed: int, *, launch: int = 0, ranks: int = 1, steps: Steps | None = None
) -> JudgedRepeat:
    logs = [
        RankLog(steps or cohort_steps(batch, 100_000 * batch, seed + rank), RELEASE, rank)
        for rank in range(ranks)
    ]
    return JudgedRepeat.of(launch, logs, PLAN, batch=batch)


def planned_window() -> PlannedWindow:
    return PlannedWindow(**{name: getattr(PLAN, name) for name in PlannedWindow.model_fields})


def valid_point(
    number: int, batch: int, store: Store | None = None, *, ranks: int = 1, repeats: int = 6
) -> Point:
    """A point of `repeats` cohorts on one launch, the first of them thrown away; steps go to `store`."""
    cohorts = [judged(batch, 1000 * number + 10 * repeat, ranks=ranks) for repeat in range(repeats)]
    if store is not None:
        for repeat, cohort in enumerate(cohorts):
            store.append_repeat(RepeatKey(number, batch, CONTEXT, 0, repeat), cohort.rank_steps())
    return Point(
        point=number,
        batch_size=batch,
        batch_size_total=batch * ranks,
        context_len=CONTEXT,
        status=Status.VALID,
        precision_asked=0.02,
        window=planned_window(),
        repeat_details=tuple(
            cohort.detail(repeat, discarded=repeat == 0) for repeat, cohort in enumerate(cohorts)
        ),
        **point_figures(cohorts[1:], batch_size_total=batch * ranks, devices=ranks),
    )


def other_point(number: int, status: Status, reason: str) -> Point:
    return Point(
        point=number, batch_size=64, batch_size_total=64, context_len=4096, status=status, reason=reason
    )


def document(out: Path | str, *points: Point, ranks: int = 1, **changes: object) -> RunDocument:
    """A finished run with these points."""
    fields: dict[str, object] = {
        "out": str(out),
        "started": datetime(2026, 11, 30, 2, 30, tzinfo=UTC),
        "finished": datetime(2026, 11, 30, 2, 35, tzinfo=UTC),
        "status": RunStatus.FINISHED,
        "command": ("decodebench", "run"),
        "fingerprint": FINGERPRINT,
        "engine": Engine(
            model="tiny-gemma3",
            recipe="tiny-gemma3",
            weights="seeded",
            vllm_version="0.32.0",
            devices=("cpu",) * ranks,
            groups=(
                Group(kind="full_attention", block_size=16, layers=1),
                Group(kind="sliding_window", block_size=16, layers=5),
            ),
            hma=True,
            data_parallel_size=ranks,
        ),
        "host": Host(cpu="test", cores=2),
        "settings": Settings(batch_sizes=(2, 8), context_lens=(CONTEXT,), precision=0.02),
        "points": points,
    }
    return RunDocument(**(fields | changes))  # type: ignore[arg-type]


def finished_run(directory: Path, *, ranks: int = 1) -> RunDocument:
    """A whole result directory: two valid points and one of each other kind."""
    with Store.create(directory) as store:
        points = [
            valid_point(0, 2, store, ranks=ranks),
            valid_point(1, 8, store, ranks=ranks),
            other_point(2, Status.DOES_NOT_FIT, "needs 4128 of 2000 blocks"),
            other_point(3, Status.NOT_RUN, "the time budget of 300 s was used up"),
        ]
        run = document(directory, *points, ranks=ranks)
        store.finish(run)
    return run
