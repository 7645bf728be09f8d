"""`decodebench run` from start to end: what it prints, stores and leaves behind."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from tests.e2e.command import Command
from tests.e2e.servers import GEMMA3, GEMMA3_PLAIN, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "run-1.json"
POOL = ("--kv-cache-memory-bytes", "64M")
"""An audit takes checksums of the whole pool before and after every fill."""
GRID = ("--context-len", "500", "--window-steps", "8", "--max-repeats", "5", "--max-time", "4m")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the default model, audited and compared: one point that fits, one that does not."""
    directory = tmp_path_factory.mktemp("run")
    asked = ("--batch-size", "2,65", *GRID, "--audit", "--fidelity", "--donor-len", "640", "--json")
    command = Command(directory, "run", *asked, "--", *POOL)
    try:
        command.wait()
        yield command
    finally:
        command.clean_up()


def assert_measured(point) -> None:
    """On a noisy machine the windows may drift, which spoils repeats: nothing else may."""
    assert point["status"] == "valid" or "drifting" in point["reason"], point["reason"]
    assert len(point["repeat_details"]) > 5


def assert_ended_well(command: Command) -> None:
    code = command.wait()
    valid = any(point["status"] == "valid" for point in command.document["points"])
    assert code == (0 if valid else 4), command.stderr


def test_the_last_line_of_stdout_is_the_document_and_keeps_to_its_schema(finished):
    jsonschema.validate(finished.document, json.loads(SCHEMA.read_text()))
    assert finished.document == finished.stored
    assert_ended_well(finished)
    assert finished.document["status"] == "finished"
    assert finished.document["engine"]["recipe"] == "tiny-gemma3"
    assert "/" not in finished.document["engine"]["model"], "where the model lies is not told"
    assert finished.document["engine"]["connector"].startswith("decodebench.connector.")


def test_a_point_that_fits_is_measured(finished):
    point = finished.document["points"][0]
    assert point["batch_size"] == 2
    assert_measured(point)
    if point["status"] == "valid":
        assert point["step_time_ns"]["low"] <= point["step_time_ns"]["mean"] <= point["step_time_ns"]["high"]
    for detail in point["repeat_details"]:
        assert detail["filled"]["pages_written"] == detail["filled"]["pages_planned"]
        assert (detail["prefill_tokens"], detail["preemptions"]) == (0, 0)


def test_every_repeat_is_filled_from_donors_and_proved(finished):
    point = finished.document["points"][0]
    assert point["content"] == "donor"
    for detail in point["repeat_details"]:
        proof, filled = detail["audit"], detail["filled"]
        assert (proof["mismatches"], proof["unowned_changed"]) == (0, 0)
        assert filled["donor_pages"] == filled["pages_written"]
        layers = [group["layers"] for group in finished.document["engine"]["groups"]]
        assert proof["pages"] == [n * pages for n, pages in zip(layers, filled["pages_written"], strict=True)]
    total = [
        sum(group)
        for group in zip(*(each["audit"]["pages"] for each in point["repeat_details"]), strict=True)
    ]
    assert point["audit"]["pages"] == total
    assert f"Audit: {sum(total):,} pages proved, 0 mismatches" in finished.stdout


def test_the_fill_is_compared_with_real_prefill_at_the_largest_batch_that_fits(finished):
    measured, too_large = finished.document["points"]
    found = measured["fidelity"]
    assert too_large["fidelity"] is None
    assert found["fill"] == "donor"
    assert found["rounds"] + found["spoiled"] >= 1
    assert 0 < found["duration_ns"] < 120 * 10**9, (
        "bounded by a quarter of --max-time, and the round it began with"
    )
    if found["rounds"]:
        assert -1 < found["error"] < 10
        assert abs(found["real"]["measured_context"] - found["filled"]["measured_context"]) < 20
    else:  # on a noisy machine windows drift
        assert "drifting" in found["reason"]
    assert "Error against real prefill: " in finished.stdout
    assert "not measured" in finished.stdout


def test_a_point_that_does_not_fit_is_told_and_never_run(finished):
    point = finished.document["points"][1]
    assert (point["batch_size"], point["status"]) == (65, "does_not_fit")
    assert point["reason"] == "65 requests, but --max-num-seqs is 64: raise it after `--`"
    assert point["repeat_details"] == []
    assert "--max-num-seqs is 64" in finished.stdout
    told, started = finished.stderr.index("batch 65"), finished.stderr.index("waiting for vLLM")
    assert told < started, "what the plan knows is told before a server is started"


def test_nothing_of_a_finished_run_is_left_running(finished):
    assert finished.left_behind() == []


def test_show_prints_it_again_and_verify_finds_every_figure_in_the_steps(finished, tmp_path):
    shown = Command(tmp_path, "show", str(finished.out), "--verify")
    assert shown.wait() == 0
    found = finished.document["points"][0]["fidelity"]
    rounds = found["rounds"] + found["spoiled"]
    assert f" and {rounds} rounds of the comparison with real prefill recomputed" in shown.stdout
    assert "0 mismatches" in shown.stdout
    assert "--max-num-seqs is 64" in shown.stdout


@pytest.mark.matrix
def test_a_comparison_that_was_cut_short_is_measured_anew(finished, tmp_path):
    """Its kept rounds are not counted with the new ones, even if both are of the same launch."""
    copy = tmp_path / "cut"
    shutil.copytree(finished.out, copy)
    document = json.loads((copy / "run.json").read_text())
    document["points"][0]["fidelity"] |= {"low": None, "high": None, "at_equal_speed": None}
    (copy / "run.json").write_text(json.dumps(document))
    rounds = copy / "rounds.jsonl"
    rounds.write_text(rounds.read_text().replace('"launch":0', '"launch":1'))
    resumed = Command(tmp_path, "run", "--resume", str(copy), "--json")
    try:
        assert_ended_well(resumed)
        assert resumed.document["points"][0]["fidelity"]["launch"] == 1
        verified = Command(tmp_path, "show", str(copy), "--verify")
        assert verified.wait() == 0, verified.stdout
    finally:
        resumed.clean_up()


@pytest.mark.matrix
def test_from_runs_the_same_again_somewhere_else(finished, tmp_path):
    again = Command(tmp_path, "run", "--from", str(finished.out), "--json")
    try:
        assert_ended_well(again)
        assert again.document["fingerprint"] == finished.document["fingerprint"]
        assert again.document["command"] == finished.document["command"]
        assert again.document["out"] == str(again.out) != finished.document["out"]
        assert_measured(again.document["points"][0])
    finally:
        again.clean_up()


@on(GEMMA3)
def test_a_server_that_runs_already_is_measured_and_left_alone(server, tmp_path):
    command = Command(
        tmp_path, "run", "--url", server.target.base_url, "--batch-size", "2,17", *GRID, "--json"
    )
    assert_ended_well(command)
    assert_measured(command.document["points"][0])
    assert command.document["points"][1]["status"] == "does_not_fit"
    server.server.check()


@on(GEMMA3_PLAIN)
def test_a_server_without_our_connector_is_unverified(server, tmp_path):
    command = Command(
        tmp_path, "run", "--url", server.target.base_url, "--batch-size", "2,4", *GRID, "--json"
    )
    assert command.wait() == 4, command.stderr
    assert [point["status"] for point in command.document["points"]] == ["unverified"] * 2
    for point in command.document["points"]:
        assert "does not run decodebench's connector" in point["reason"]
        assert point["step_time_ns"] is None
    server.server.check()
