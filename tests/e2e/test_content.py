"""Every way to fill is as exact: in the step or beside it, constant or drawn; and the trace holds every step."""

import csv

import pytest

from decodebench.results.steps import STEP_COLUMNS
from tests.e2e.servers import GEMMA3_SYNC, ServerKind, on
from tests.e2e.test_exactness import SMALL, assert_exact, send_cohort

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

SYNC = {"async_fill": False}
NORMAL = {"fill_std": 0.5}
ALONE = [
    ServerKind(f"{recipe}-{name}", recipe, SMALL, config)
    for recipe in ("tiny-gemma3", "tiny-granite")
    for name, config in {"sync": SYNC, "normal": NORMAL, "sync-normal": SYNC | NORMAL}.items()
]


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(GEMMA3_SYNC, id=str(GEMMA3_SYNC)),
        *(pytest.param(kind, id=str(kind), marks=pytest.mark.matrix) for kind in ALONE),
    ],
    indirect=True,
)
def test_a_cohort_is_exact_however_it_is_filled(server):
    plan = server.plan(4_000)
    assert_exact(send_cohort(server, plan, "filled")[1], plan)


@on(GEMMA3_SYNC)
def test_the_trace_holds_every_step_of_the_server(server, servers):
    plan = server.plan(1_000)
    _, outcome = send_cohort(server, plan, "traced")
    steps = outcome.judged.logs[0].steps
    servers.stop()  # the last rows are written when the server ends
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
