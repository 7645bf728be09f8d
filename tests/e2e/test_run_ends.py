"""However a run ends, finished repeats are kept and no process stays: signals, kill -9, a dying engine, resuming."""

import json
import shutil
import signal

import psutil
import pytest

from tests.e2e.command import GONE_WITHIN_S, Command

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]  # a case starts up to two servers

LONG = ("--batch-size", "2,4", "--context-len", "500", "--window-steps", "8", "--max-repeats", "40")
"""Far more repeats than any case waits for."""
PRECISE = ("--precision", "0.0001")


@pytest.fixture
def run(tmp_path):
    """Starts `decodebench run`; ends what a failed case leaves."""
    started = []

    def start(*args: str) -> Command:
        started.append(Command(tmp_path, "run", *args))
        return started[-1]

    yield start
    for command in started:
        command.clean_up()


def kept(document):
    """The finished repeats of every point, by launch and number."""
    return {
        (point["point"], detail["launch"], detail["repeat"]): detail
        for point in document["points"]
        for detail in point["repeat_details"]
    }


def engine_core(command: Command) -> psutil.Process:
    """The process that schedules, below the server's."""
    (core,) = (each for each in command.family() if "EngineCore" in " ".join(each.cmdline()))
    return core


def test_sigterm_while_the_engine_starts(run):
    command = run(*LONG)
    command.until_said("waiting for vLLM to start")
    command.until(lambda: len(command.family()) > 1, "the server's process")
    command.signal(signal.SIGTERM)
    assert command.wait() == 143
    assert command.left_behind() == []
    assert "interrupted" in command.stderr
    assert {point["status"] for point in command.stored["points"]} == {"not_run"}


def test_ctrl_c_while_it_measures(run, tmp_path):
    command = run(*LONG, *PRECISE, "--json")
    command.until_repeats(4)
    command.signal(signal.SIGINT)
    assert command.wait() == 130
    assert command.left_behind() == []
    assert command.stored["status"] == "interrupted"
    assert command.document == command.stored
    assert len(kept(command.stored)) >= 4
    shown = Command(tmp_path, "show", str(command.out), "--verify")
    assert shown.wait() == 0
    assert "0 mismatches" in shown.stdout


def test_an_engine_that_is_killed(run, tmp_path):
    command = run(*LONG, *PRECISE, "--json")
    command.until_repeats(4)
    engine_core(command).kill()
    assert command.wait() == 3
    assert command.left_behind() == []
    assert "a process of the engine died and left no exception" in command.stderr
    assert "Traceback" not in command.stderr
    assert "server.log" in command.stderr
    document = command.stored
    assert document["status"] == "failed"
    assert len(kept(document)) >= 4
    assert Command(tmp_path, "show", str(command.out), "--verify").wait() == 0


@pytest.mark.matrix
def test_an_engine_that_hangs_is_told_as_stuck_and_ended(run):
    command = run(*LONG, *PRECISE, "--stall-timeout", "6s", "--json")
    command.until_repeats(2)
    engine_core(command).suspend()
    assert command.wait() in (0, 4)
    assert command.left_behind() == []
    assert "Traceback" not in command.stderr
    reasons = [detail["reason"] or "" for detail in kept(command.stored).values()]
    assert any("stuck: nothing changed on the server for 6 s" in reason for reason in reasons)


def test_a_killed_decodebench_leaves_no_engine_and_can_be_resumed(run, tmp_path):
    first = run("--batch-size", "2,4", "--context-len", "500", "--window-steps", "8", "--max-repeats", "5")
    first.until_repeats(3)
    first.signal(signal.SIGKILL)
    first.wait()
    assert first.left_behind(GONE_WITHIN_S) == []
    before = first.stored
    assert before["status"] == "running"

    changed = tmp_path / "changed"
    shutil.copytree(first.out, changed)
    stored = json.loads((changed / "run.json").read_text())
    stored["fingerprint"] |= {"vllm": "0.1.0", "seed": 7}
    (changed / "run.json").write_text(json.dumps(stored))
    refused = run("--resume", str(changed))
    assert refused.wait() == 2
    assert "vllm" in refused.stderr
    assert "0.1.0" in refused.stderr
    assert "seed" in refused.stderr

    resumed = run("--resume", str(first.out), "--json")
    assert resumed.wait() in (0, 4), resumed.stderr  # 4: every repeat drifted, on a noisy machine
    after = kept(resumed.document)
    for key, detail in kept(before).items():
        assert after[key] == detail
    assert resumed.document["status"] == "finished"
    assert all(len(point["repeat_details"]) > 5 for point in resumed.document["points"])
    assert resumed.left_behind() == []
    shown = Command(tmp_path, "show", str(first.out), "--verify")
    assert shown.wait() == 0
    assert "0 mismatches" in shown.stdout
