"""`decodebench run --fill donor` and `decodebench fidelity` from start to end."""

import json
from pathlib import Path
from random import Random

import jsonschema
import pytest

from decodebench.bench.client import describe_ranks
from decodebench.engine.recipes import tokenizer
from tests.e2e.command import Command
from tests.e2e.servers import GEMMA3, SMALL_POOL, on
from tests.e2e.test_run import SCHEMA, assert_ended_well

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

FIDELITY_SCHEMA = SCHEMA.with_name("fidelity-1.json")
BATCH = 4


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A grid filled from donors, the default; the longer context is longer than a donor."""
    command = Command(
        tmp_path_factory.mktemp("donors"),
        "run",
        *("--donor-len", "640"),
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


def run_on(server, tmp_path: Path, *args: str) -> Command:
    return Command(
        tmp_path,
        "run",
        *("--url", server.target.base_url, "--donor-len", "640", *args),
        *("--batch-size", "4", "--context-len", "500", "--window-steps", "8"),
        *("--max-repeats", "5", "--max-time", "1m", "--json"),
    )


def donors_held(server) -> dict[str, int]:
    (rank,) = describe_ranks(server.target)
    return rank["donor_bank"]["donors"]


@on(GEMMA3)
def test_a_server_that_runs_already_keeps_no_donor_of_a_text(server, tmp_path):
    draw = Random(0)
    words = tokenizer.words(4096)[4:]
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(draw.choices(words, k=90)) for _ in range(20)))
    command = run_on(server, tmp_path, "--donors", "3", "--donor-text", str(text))
    assert_ended_well(command)
    (phase,) = command.document["donors"]
    assert (phase["donors"], phase["source"], phase["one_a_request"]) == (3, "own text", False)
    assert donors_held(server) == {}


@on(GEMMA3)
def test_more_donors_than_a_bank_holds_are_refused_with_numbers_and_none_is_kept(server, tmp_path):
    command = run_on(server, tmp_path, "--donors", "4096")
    assert command.wait() == 2
    assert "--donors 4096: the bank of a worker has room for" in command.stderr
    assert "ask for at most" in command.stderr
    assert command.stored["status"] == "failed"
    assert donors_held(server) == {}


@on(GEMMA3)
def test_donors_too_long_for_the_server_are_wrong_input(server, tmp_path):
    command = run_on(server, tmp_path, "--donor-len", "1000000")
    assert command.wait() == 2
    assert "--donor-len 1000000: too long for max_model_len" in command.stderr
    assert command.stored["status"] == "failed"


@on(GEMMA3)
def test_a_text_that_the_tokenizer_cannot_read_is_refused(server, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("words that a made-up vocabulary does not hold\n\nand some more of them")
    command = run_on(server, tmp_path, "--donor-text", str(text))
    assert command.wait() == 2
    assert "--donor-text: the server's tokenizer cannot read it" in command.stderr


@pytest.mark.matrix
def test_fidelity_compares_fills_with_real_prefill_on_one_server(tmp_path: Path):
    command = Command(
        tmp_path,
        "fidelity",
        "tiny-gptoss",
        *("--batch-size", "4,65", "--context-len", "500", "--fills", "constant,donor", "--donors", "1,all"),
        *("--window-steps", "24", "--max-draws", "5", "--passes", "2", "--max-time", "3m"),
        *("--donor-len", "512", "--json"),
    )
    try:
        assert command.wait() == 0, command.stderr
        document = command.document
    finally:
        command.clean_up()
    jsonschema.validate(document, json.loads(FIDELITY_SCHEMA.read_text()))
    assert "/" not in document["engine"]["model"], "where the model lies is not told"
    assert document == json.loads((Path(command.directory) / document["out"] / "fidelity.json").read_text())
    measured, too_large = document["points"]
    assert "does not fit" in too_large["reason"]
    assert [each["fill"] for each in measured["comparisons"]] == ["constant", "donor:1", "donor"]
    for each in measured["comparisons"]:
        assert each["rounds"] + each["spoiled"] == 10
        assert 1 <= each["at_equal_speed"]["draws"] <= 5
        assert -0.5 < each["at_equal_speed"]["error"] < 1
        if each["rounds"]:
            assert -1 < each["error"] < 10
            assert abs(each["real"]["measured_context"] - each["filled"]["measured_context"]) < 12, "MSER-5"
            assert 1 <= each["real"]["distinct_tokens"] <= 4
        else:  # on a noisy machine windows drift
            assert "drifting" in each["reason"]
    verify = Command(tmp_path, "show", str(Path(command.directory) / document["out"]), "--verify")
    assert verify.wait() == 0, verify.stderr
    assert "10 rounds recomputed from their steps, 0 mismatches" in verify.stdout
