"""With `trace_dir` set the connector writes every step of a data-parallel rank to a file of its own."""

import csv

import pytest

from decodebench.results.steps import STEP_COLUMNS
from tests.e2e.servers import GEMMA3_SYNC, on
from tests.e2e.test_exactness import send_cohort

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine


@on(GEMMA3_SYNC)
def test_the_trace_holds_every_step_of_the_server(server, servers):
    plan = server.plan(1_000)
    _, outcome = send_cohort(server, plan, "traced")
    steps = outcome.judged.logs[0].steps
    servers.stop()  # an engine that is ended takes no row with it
    (trace,) = server.trace_dir.glob("steps-dp0-*.csv")
    with trace.open() as stream:
        header, *rows = csv.reader(stream)
    assert tuple(header) == STEP_COLUMNS
    table = [[int(value) for value in row] for row in rows]
    numbers = [row[0] for row in table]
    assert numbers == list(range(len(numbers)))
    by_step = {row[0]: row for row in table}
    for logged in zip(*(steps[name] for name in STEP_COLUMNS), strict=True):
        if logged[STEP_COLUMNS.index("done_ns")]:  # else it had not come back when the answer was sent
            assert by_step[logged[0]] == list(logged)
