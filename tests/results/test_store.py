import errno
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.errors import UserError
from decodebench.results import parquet
from decodebench.results.parquet import SCHEMA, RankSteps, RepeatKey
from decodebench.results.steps import STEP_COLUMNS
from decodebench.results.store import Store, default_directory, repeat_keys
from tests.results.documents import (
    CONTEXT,
    FINGERPRINT,
    cohort_steps,
    document,
    finished_run,
    judged,
    valid_point,
)

KEY = RepeatKey(0, 2, CONTEXT, 0, 0)


@st.composite
def rank_steps(draw: st.DrawFn, dp_rank: int = 0) -> RankSteps:
    rows = draw(st.integers(1, 6))
    column = st.lists(st.integers(0, 2**62), min_size=rows, max_size=rows)
    start = draw(st.integers(0, rows))
    stop = draw(st.integers(start, rows))
    steps = {name: draw(column) for name in STEP_COLUMNS}
    return RankSteps(
        steps, draw(st.integers(0, 99)), range(start, stop) if start < stop else range(0), dp_rank
    )


@given(rank_steps(0), rank_steps(1))
def test_steps_read_back_as_they_were_kept(first: RankSteps, second: RankSteps) -> None:
    assert parquet.to_ranks(parquet.to_table(KEY, [first, second])) == (first, second)


def test_merging_the_parts_changes_no_step(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    run = document(store.directory, valid_point(0, 2, store, ranks=2), valid_point(1, 8, store))
    store.write(run)
    before = dict(store.repeats())
    store.finish(run)
    assert dict(store.repeats()) == before
    assert set(before) == set(repeat_keys(run))
    assert sorted(path.name for path in store.directory.iterdir()) == ["run.json", "steps.parquet"]
    assert store.load() == run


def test_steps_that_the_document_does_not_mention_are_dropped_at_the_end(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    run = document(store.directory, valid_point(0, 2, store))
    store.append_repeat(RepeatKey(0, 2, CONTEXT, 0, 99), judged(2, 1).rank_steps())
    store.finish(run)
    assert {key for key, _ in store.repeats()} == set(repeat_keys(run))


def test_a_cohort_without_steps_leaves_no_file(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.append_repeat(KEY, [])
    assert list(store.repeats()) == []


def test_a_resumed_run_adds_to_the_merged_steps_and_replaces_what_it_measures_again(tmp_path: Path) -> None:
    first = finished_run(tmp_path / "run")
    store, found = Store.resume(tmp_path / "run", FINGERPRINT)
    assert found == first
    again = RankSteps(cohort_steps(2, 777_000), 7)
    store.append_repeat(KEY, [again])
    store.append_repeat(RepeatKey(4, 2, CONTEXT, 0, 0), [again])
    steps = dict(store.repeats())
    assert steps[KEY] == (again,)
    assert len(list(store.repeats())) == len(steps), "nothing twice"
    run = document(store.directory, *first.points, valid_point(4, 2, repeats=2))
    store.finish(run)
    assert dict(store.repeats()) == steps
    assert set(steps) == {*repeat_keys(first), RepeatKey(4, 2, CONTEXT, 0, 0)}


def test_resuming_another_measurement_names_the_field_and_both_values(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"seed: 0 before, 1 now"):
        Store.resume(tmp_path / "run", FINGERPRINT | {"seed": 1})


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(UserError, match="not empty; results are never overwritten"):
        Store.create(tmp_path / "run")
    with pytest.raises(UserError, match="cannot write"):
        Store.create(tmp_path / "run" / "run.json")
    (tmp_path / "empty").mkdir()
    Store.create(tmp_path / "empty")


def test_two_runs_do_not_write_to_one_directory(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run") as store:
        store.write(document(store.directory))
        with pytest.raises(UserError, match="another decodebench is writing"):
            Store.resume(tmp_path / "run", FINGERPRINT)
        assert Store.open(tmp_path / "run").load() == document(store.directory), "reading needs no lock"
    Store.resume(tmp_path / "run", FINGERPRINT)


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from decodebench.results.store import Store
from tests.results.documents import document, valid_point

store = Store.create(Path(sys.argv[1]))
run = document(store.directory, valid_point(0, 2, store), status="running")
store.write(run)
calls = iter(range({nth}))
real = os.{call}

def deadly(*paths, **more):
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*paths, **more)

os.{call} = deadly
{write}
"""


@pytest.mark.parametrize(
    ("write", "call", "nth"),
    [
        ("store.write(document('other'))", "replace", 0),
        ("valid_point(1, 8, store)", "replace", 0),
        ("valid_point(1, 8, store)", "fsync", 0),
        ("store.finish(run)", "replace", 1),  # before the merged steps appear
        ("store.finish(run)", "rmdir", 0),  # after the parts are gone
    ],
)
def test_a_kill_at_any_moment_of_a_write_loses_nothing_that_was_kept(
    tmp_path: Path, write: str, call: str, nth: int
) -> None:
    script = KILLED_WHILE_WRITING.format(write=write, call=call, nth=nth)
    root = Path(__file__).parents[2]
    died = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], cwd=root, timeout=120, check=False
    )
    assert died.returncode == -signal.SIGKILL
    store, run = Store.resume(tmp_path / "run", FINGERPRINT)
    assert run.points == (valid_point(0, 2),)
    steps = dict(store.repeats())
    assert set(steps) >= set(repeat_keys(run))
    store.finish(run)
    assert dict(store.repeats()) == {key: steps[key] for key in repeat_keys(run)}


def test_a_full_disk_is_one_error_and_leaves_the_last_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.create(tmp_path / "run")
    run = document(store.directory, valid_point(0, 2, store))
    store.write(run)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*run\.json: No space left on device"):
        store.write(document("other"))
    with pytest.raises(UserError, match=r"cannot write .*\.parquet: No space left on device"):
        valid_point(1, 8, store)
    assert store.load() == run
    assert {key for key, _ in store.repeats()} == set(repeat_keys(run))
    assert not list(store.directory.rglob("*.partial"))


def test_a_directory_that_cannot_be_made_is_one_error() -> None:
    with pytest.raises(UserError, match=r"cannot write /proc/nothing"):
        Store.create(Path("/proc/nothing/run"))


@pytest.mark.parametrize("name", ["run.json", "steps.parquet"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    finished_run(tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    store = Store.open(tmp_path / "run")
    with pytest.raises(UserError, match=name):
        _ = store.load(), list(store.repeats())


FOREIGN = pa.table({"city": ["a"], "step": [1]})
OTHER_TYPES = pa.table({name: pa.array(["1"]) for name in SCHEMA.names})
WITH_NULL = pa.table({name: pa.array([None], SCHEMA.field(name).type) for name in SCHEMA.names})


@pytest.mark.parametrize(
    ("table", "message"),
    [(FOREIGN, "no column point"), (OTHER_TYPES, "other types"), (WITH_NULL, "lacks a value")],
)
def test_a_foreign_parquet_file_is_one_error(tmp_path: Path, table: pa.Table, message: str) -> None:
    finished_run(tmp_path / "run")
    pq.write_table(table, tmp_path / "run" / "steps.parquet")
    with pytest.raises(UserError, match=message):
        list(Store.open(tmp_path / "run").repeats())


def test_cohorts_mixed_in_one_row_group_are_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    path = tmp_path / "run" / "steps.parquet"
    pq.write_table(pq.read_table(path), path)
    with pytest.raises(UserError, match="more than one cohort"):
        list(Store.open(tmp_path / "run").repeats())


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"no parquet at all"])
def test_a_damaged_parquet_file_is_one_error(tmp_path: Path, damage: bytes) -> None:
    finished_run(tmp_path / "run")
    (tmp_path / "run" / "steps.parquet").write_bytes(damage)
    with pytest.raises(UserError, match=r"steps\.parquet: cannot be read"):
        list(Store.open(tmp_path / "run").repeats())


def test_a_cut_parquet_file_is_an_error_wherever_it_is_cut(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    path = tmp_path / "run" / "steps.parquet"
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be read"):
            list(Store.open(tmp_path / "run").repeats())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "20261130T023000Z-DeepSeek-V4-Flash"),
        ("models/a b/", "20261130T023000Z-a-b"),
        ("..", "20261130T023000Z-model"),
        ("x" * 300, "20261130T023000Z-" + "x" * 80),
    ],
)
def test_the_default_directory_is_the_utc_time_and_a_plain_name(model: str, name: str) -> None:
    now = datetime(2026, 11, 30, 2, 30, tzinfo=UTC)
    assert default_directory(model, now) == Path("decodebench-results") / name
