"""More than one worker: every one of them fills and reports, and every data-parallel rank decodes its own cohort."""

import pytest

from tests.e2e.command import Command
from tests.e2e.servers import UNBOUND, ServerKind, on
from tests.e2e.test_exactness import SMALL, assert_exact, send_cohort
from tests.e2e.test_run import assert_ended_well

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = [pytest.mark.engine, pytest.mark.matrix]

TP2, TP2_HYBRID = (
    ServerKind(f"{recipe}-tp2", recipe, (*SMALL, "--tensor-parallel-size", "2"), env=UNBOUND)
    for recipe in ("tiny-llama", "tiny-gemma3")
)
DP2 = ServerKind("tiny-llama-dp2", "tiny-llama", (*SMALL, "--data-parallel-size", "2"), traced=True)


@on(TP2, TP2_HYBRID)
def test_both_tensor_parallel_workers_fill_and_the_cohort_is_exact(server):
    plan = server.plan(4_000)
    _, outcome = send_cohort(server, plan, "tp")
    assert outcome.filled["workers"] == 2
    assert_exact(outcome, plan)


@on(DP2)
def test_each_data_parallel_rank_decodes_a_cohort_of_its_own(server):
    assert len(server.engine.ranks) == 2
    plan = server.plan(2_000)
    _, outcome = send_cohort(server, plan, "dp", batch=4)
    assert_exact(outcome, plan, batch=4, ranks=2)
    assert {log.dp_rank for log in outcome.judged.logs} == {0, 1}
    assert len(list(server.trace_dir.glob("steps-dp0-*.csv"))) == 1
    assert len(list(server.trace_dir.glob("steps-dp1-*.csv"))) == 1


def test_run_measures_both_data_parallel_ranks(tmp_path):
    command = Command(tmp_path, "run", "tiny-llama", *SHORT, "--json", "--", "--data-parallel-size", "2")
    assert_ended_well(command)
    document = command.document
    assert document["engine"]["data_parallel_size"] == 2
    (point,) = document["points"]
    assert (point["batch_size"], point["batch_size_total"]) == (2, 4)
    details = point["repeat_details"]
    spoiled = {each["rule"] for each in details if each["status"] != "valid"}
    assert len(details) > 5
    # On a loaded machine ranks fall apart too, but not always.
    assert point["status"] == "valid" or spoiled <= {"drifting", "ranks"}, point["reason"]
    assert "ranks" not in spoiled or any(each["status"] == "valid" for each in details), point["reason"]
    assert Command(tmp_path, "show", str(command.out), "--verify").wait() == 0
    assert command.left_behind() == []


SHORT = ("--batch-size", "2", "--context-len", "500", "--max-repeats", "5", "--window-steps", "8")
