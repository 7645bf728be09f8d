from pathlib import Path

import pytest

from decodebench.bench.verify import verify
from decodebench.results.audit import AuditProof
from decodebench.results.parquet import RankSteps, RepeatKey
from decodebench.results.point import Point, RepeatDetail
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store
from tests.results.documents import CONTEXT, cohort_steps, document, finished_run, judged, valid_point


def mismatches(run: RunDocument, store: Store) -> list[str]:
    return [f"{found.where} | {found.field}" for found in verify(run, store.repeats()).mismatches]


def with_point(run: RunDocument, **changes: object) -> RunDocument:
    point = run.points[0].model_copy(update=changes)
    return run.model_copy(update={"points": (point, *run.points[1:])})


def with_repeat(run: RunDocument, number: int, **changes: object) -> RunDocument:
    details = list(run.points[0].repeat_details)
    details[number] = details[number].model_copy(update=changes)
    return with_point(run, repeat_details=tuple(details))


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> RunDocument:
    return finished_run(tmp_path_factory.mktemp("results") / "run", ranks=request.param)


@pytest.fixture
def store(run: RunDocument) -> Store:
    return Store.open(Path(run.out))


def test_an_untouched_run_is_reproduced(run: RunDocument, store: Store) -> None:
    result = verify(store.load(), store.repeats())
    assert (result.points, result.repeats, result.mismatches) == (4, 12, ())


FIGURES = (
    "measured_context",
    "repeats",
    "launches",
    "steps",
    "prefill_tokens",
    "preemptions",
    "precision_reached",
    "output_tokens_per_s",
    "output_tokens_per_s_per_request",
    "output_tokens_per_s_per_device",
)


@pytest.mark.parametrize("field", FIGURES)
def test_a_changed_figure_of_a_point_is_found(run: RunDocument, store: Store, field: str) -> None:
    changed = getattr(run.points[0], field) * 1.001 + 1
    assert mismatches(with_point(run, **{field: changed}), store) == [
        f"point 0 (batch 2, context {CONTEXT}) | {field}"
    ]


@pytest.mark.parametrize("field", ["mean", "low", "high", "median", "p90", "p99", "max"])
def test_a_step_time_off_by_one_nanosecond_is_found(run: RunDocument, store: Store, field: str) -> None:
    time = run.points[0].step_time_ns
    changed = time.model_copy(update={field: getattr(time, field) + 1})  # type: ignore[union-attr]
    found = mismatches(with_point(run, step_time_ns=changed), store)
    assert found == [f"point 0 (batch 2, context {CONTEXT}) | step_time_ns"]


def test_an_interval_of_too_few_repeats_is_found(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    run = document(store.directory, valid_point(0, 2, store, repeats=4))
    assert mismatches(run, store) == []
    time = run.points[0].step_time_ns
    assert time is not None
    wide = time.model_copy(update={"low": -127_202_000, "high": 157_573_000})
    assert mismatches(with_point(run, step_time_ns=wide, interval="within one launch"), store) == [
        f"point 0 (batch 2, context {CONTEXT}) | {field}" for field in ("step_time_ns", "interval")
    ]


@pytest.mark.parametrize(
    "field", ["window_start", "steps", "duration_ns", "measured_context", "prefill_tokens"]
)
def test_a_changed_figure_of_a_repeat_is_found(run: RunDocument, store: Store, field: str) -> None:
    changed = getattr(run.points[0].repeat_details[1], field) + 1
    assert mismatches(with_repeat(run, 1, **{field: changed}), store) == [
        f"point 0 (batch 2, context {CONTEXT}), launch 0, repeat 1 | {field}"
    ]


def test_a_repeat_that_was_counted_but_thrown_away_changes_the_figures(
    run: RunDocument, store: Store
) -> None:
    assert mismatches(with_repeat(run, 0, discarded=False), store)


def test_a_repeat_hidden_from_the_document_is_found(run: RunDocument, store: Store) -> None:
    hidden = with_point(run, repeat_details=run.points[0].repeat_details[:-1])
    assert f"point 0 (batch 2, context {CONTEXT}), launch 0, repeat 5 | the repeat" in mismatches(
        hidden, store
    )


def test_a_run_that_was_killed_may_have_steps_that_its_document_does_not_know(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    run = document(store.directory, valid_point(0, 2, store), status=RunStatus.RUNNING)
    store.append_repeat(RepeatKey(0, 2, CONTEXT, 0, 99), judged(2, 1).rank_steps())
    assert mismatches(run, store) == []


def test_a_repeat_without_its_steps_is_found(run: RunDocument, store: Store) -> None:
    kept = ((key, ranks) for key, ranks in store.repeats() if key.repeat != 2)
    found = verify(run, kept).mismatches
    assert any(str(mismatch.where).endswith("repeat 2") and mismatch.field == "steps" for mismatch in found)


def test_a_valid_point_hidden_behind_another_status_is_found(run: RunDocument, store: Store) -> None:
    hidden = with_point(run, status=Status.FAILED, reason="no", step_time_ns=None)
    assert mismatches(hidden, store) == [f"point 0 (batch 2, context {CONTEXT}) | status"]


def test_a_point_without_a_majority_of_valid_repeats_is_found(run: RunDocument, store: Store) -> None:
    failed = RepeatDetail(launch=0, repeat=9, status=Status.FAILED, reason="the connection failed")
    details = (
        *run.points[0].repeat_details,
        *(failed.model_copy(update={"repeat": 9 + n}) for n in range(5)),
    )
    found = mismatches(with_point(run, repeat_details=details), store)
    assert found == [f"point 0 (batch 2, context {CONTEXT}) | status"]


SPOILED = {
    "prefill_tokens": "also prefilled 1 token(s)",
    "foreign_reqs": "also ran 1 request(s) from outside the cohort",
    "preempted": "preempted 1 request(s)",
    "fills_in_flight": "ran while 1 fill(s) were being written",
}


def spoiled_run(
    directory: Path, column: str, detail: RepeatDetail | None = None
) -> tuple[Store, RunDocument]:
    """A valid point whose last repeat had something else in a step of its window; `detail` replaces its record."""
    store = Store.create(directory)
    point = valid_point(0, 2, store)
    steps = cohort_steps(2, 200_000)
    steps[column][len(steps[column]) // 2] = 1
    cohort = judged(2, 0, steps=steps)
    number = len(point.repeat_details)
    store.append_repeat(RepeatKey(0, 2, CONTEXT, 0, number), cohort.rank_steps())
    details = (*point.repeat_details, detail or cohort.detail(number))
    return store, document(store.directory, point.model_copy(update={"repeat_details": details}))


@pytest.mark.parametrize("column", SPOILED)
def test_an_invalid_repeat_keeps_its_reason_when_recomputed(tmp_path: Path, column: str) -> None:
    store, run = spoiled_run(tmp_path / "run", column)
    detail = run.points[0].repeat_details[-1]
    assert detail.status is Status.INVALID
    assert detail.reason is not None
    assert detail.reason.endswith(SPOILED[column])
    assert mismatches(run, store) == []


@pytest.mark.parametrize("column", SPOILED)
def test_an_invalid_repeat_declared_valid_is_found(tmp_path: Path, column: str) -> None:
    honest = valid_point(0, 2).repeat_details[1].model_copy(update={"repeat": 6})
    store, run = spoiled_run(tmp_path / "run", column, honest)
    found = mismatches(run, store)
    assert f"point 0 (batch 2, context {CONTEXT}), launch 0, repeat 6 | status" in found


def test_a_verdict_that_lies_outside_the_log_is_kept(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    point: Point = valid_point(0, 2, store)
    detail = (
        judged(2, 3).detail(6).model_copy(update={"status": Status.FAILED, "reason": "request 1 was refused"})
    )
    store.append_repeat(RepeatKey(0, 2, CONTEXT, 0, 6), judged(2, 3).rank_steps())
    run = document(
        store.directory, point.model_copy(update={"repeat_details": (*point.repeat_details, detail)})
    )
    assert mismatches(run, store) == []


def test_a_valid_repeat_whose_pages_were_not_all_written_is_found(run: RunDocument, store: Store) -> None:
    full = {"workers": 1, "pages_planned": [4, 8], "pages_written": [4, 8]}
    assert mismatches(with_repeat(run, 1, filled=full), store) == []
    assert mismatches(with_repeat(run, 1, filled=full | {"pages_written": [4, 7]}), store) == [
        f"point 0 (batch 2, context {CONTEXT}), launch 0, repeat 1 | pages_written"
    ]


def test_moved_window_flags_are_found(run: RunDocument, store: Store) -> None:
    def moved(rank: RankSteps) -> RankSteps:
        return RankSteps(
            rank.steps, rank.release_step, range(rank.window.start + 1, rank.window.stop), rank.dp_rank
        )

    cohorts = [(key, tuple(moved(rank) for rank in ranks)) for key, ranks in store.repeats()]
    found = verify(run, cohorts).mismatches
    assert {mismatch.field for mismatch in found} == {"the rows of the window"}


def test_steps_made_faster_do_not_give_the_stored_figures(run: RunDocument, store: Store) -> None:
    def faster(rank: RankSteps) -> RankSteps:
        steps = rank.steps | {"done_ns": [done * 9 // 10 for done in rank.steps["done_ns"]]}
        return RankSteps(steps, rank.release_step, rank.window, rank.dp_rank)

    cohorts = [(key, tuple(faster(rank) for rank in ranks)) for key, ranks in store.repeats()]
    fields = {mismatch.field for mismatch in verify(run, cohorts).mismatches}
    assert {"duration_ns", "step_time_ns", "output_tokens_per_s"} <= fields


def test_an_audit_that_a_valid_repeat_contradicts_or_that_does_not_add_up_is_found(
    run: RunDocument, store: Store
) -> None:
    sound, faulty = AuditProof(pages=(30, 5)), AuditProof(pages=(30, 5), mismatches=2)
    proved = with_point(with_repeat(run, 1, audit=sound), audit=sound)
    assert mismatches(proved, store) == []
    assert any("| audit" in each for each in mismatches(with_point(proved, audit=faulty), store))
    damaged = with_point(with_repeat(run, 1, audit=faulty), audit=faulty)
    assert any("repeat 1 | audit" in each for each in mismatches(damaged, store))
