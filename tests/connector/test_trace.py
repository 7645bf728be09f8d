"""The file of every step: a scheduler outlives whatever happens to it."""

import csv
from pathlib import Path

import pytest

from decodebench.connector.trace import Trace
from decodebench.results.steps import STEP_COLUMNS


def rows_of(directory):
    (path,) = directory.glob("steps-dp0-*.csv")
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_every_step_is_written_as_soon_as_its_outputs_are_back(engine, tmp_path):
    e = engine(extra={"trace_dir": str(tmp_path / "a folder" / "trace")})
    e.add(prompt_len=50, max_tokens=3)
    e.run()
    rows = rows_of(tmp_path / "a folder" / "trace")
    assert list(rows[0]) == list(STEP_COLUMNS)
    assert [row["decode_tokens"] for row in rows if row["num_reqs"] != "0"] == ["1"] * 3
    assert all(int(row["done_ns"]) > int(row["scheduled_ns"]) for row in rows)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_ends_the_trace_with_one_warning_and_not_the_engine(engine, tmp_path, warnings_of_ours):
    e = engine(extra={"trace_dir": str(tmp_path / "trace")})
    trace = e.connector._scheduler_half._log._trace
    trace._file.close()
    trace._file = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
    members = e.cohort(size=2, max_tokens=5)
    e.run()
    assert e.answer(members[0])["steps"]["decode_tokens"][-5:] == [2] * 5
    assert len([text for text in warnings_of_ours if "no more steps are written" in text]) == 1
    e.connector.shutdown()


@pytest.mark.parametrize("name", ["a file", "null\0byte", "a file/below"])
def test_a_folder_that_cannot_be_written_stops_the_start_and_is_named(tmp_path, name):
    (tmp_path / "a file").write_text("")
    with pytest.raises(ValueError, match=r"trace_dir .* cannot be written"):
        Trace(str(tmp_path / name), 0, print)
