"""`decodebench run --fill donor` and `decodebench fidelity` from start to end."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests.e2e.command import Command
from tests.e2e.servers import SMALL_POOL
from tests.e2e.test_run import SCHEMA, assert_ended_well

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

BATCH = 4


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A grid filled from donors; the longer context is longer than a donor."""
    command = Command(
        tmp_path_factory.mktemp("donors"),
        "run",
        *("--fill", "donor", "--donor-len", "640"),
        *("--batch-size", f"2,{BATCH}", "--context-len", "500,900", "--window-steps", "8"),
        *("--max-repeats", "5", "--max-time", "4m", "--json"),
        *("--", *SMALL_POOL),
    )
    try:
        command.wait()
        yield command
    finally:
        command.clean_up()


def test_a_grid_filled_from_donors_is_measured(filled):
    assert_ended_well(filled)
    jsonschema.validate(filled.document, json.loads(SCHEMA.read_text()))
    for point in filled.document["points"]:
        assert point["status"] == "valid" or "drifting" in point["reason"], point["reason"]
        assert len(point["repeat_details"]) >= 5
        assert point["content"] == "donor"


def test_every_page_of_every_member_came_from_a_donor(filled):
    for point in filled.document["points"]:
        for detail in point["repeat_details"]:
            proof = detail["filled"]
            assert proof["donor_pages"] == proof["pages_written"] == proof["pages_planned"]
            assert detail["prefill_tokens"] == 0


def test_the_cost_of_the_donors_is_told_and_lies_outside_every_measurement(filled):
    (phase,) = filled.document["donors"]
    assert (phase["donors"], phase["donor_len"], phase["source"]) == (BATCH, 640, "random ids")
    assert phase["tokens"] == BATCH * 640
    assert phase["one_a_request"]
    assert phase["duration_ns"] > 0
    assert phase["bank_bytes"] > 0
    assert f"{BATCH} donors of 640 tokens (random ids), one a request" in filled.stdout


def test_verify_finds_every_figure_of_a_donor_run_in_its_steps(filled, tmp_path):
    shown = Command(tmp_path, "show", str(filled.out), "--verify")
    assert shown.wait() == 0
    assert "0 mismatches" in shown.stdout


@pytest.mark.matrix
def test_fidelity_compares_fills_with_real_prefill_on_one_server(tmp_path: Path):
    command = Command(
        tmp_path,
        "fidelity",
        "tiny-gptoss",
        *("--batch-size", "4,65", "--context-len", "500", "--fills", "constant,donor", "--donors", "1,all"),
        *("--window-steps", "8", "--max-rounds", "5", "--max-time", "3m", "--donor-len", "512", "--json"),
    )
    try:
        code = command.wait()
        document = command.document
    finally:
        command.clean_up()
    assert document["schema"] == "decodebench.fidelity/1"
    assert document == json.loads((Path(command.directory) / document["out"] / "fidelity.json").read_text())
    measured, too_large = document["points"]
    assert "does not fit" in too_large["reason"]
    assert [each["fill"] for each in measured["comparisons"]] == ["constant", "donor:1", "donor"]
    for each in measured["comparisons"]:
        assert each["rounds"] + each["spoiled"] >= 5
        if each["rounds"]:
            assert -1 < each["error"] < 10
            assert abs(each["real"]["measured_context"] - each["filled"]["measured_context"]) < 20
            assert 1 <= each["real"]["distinct_tokens"] <= 4
        else:  # on a noisy machine windows drift
            assert "drifting" in each["reason"]
    assert code == (0 if any(each["rounds"] for each in measured["comparisons"]) else 4), command.stderr
