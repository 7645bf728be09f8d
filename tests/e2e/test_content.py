"""Every way to fill is as exact: in the step or beside it, constant or drawn."""

import pytest

from tests.e2e.servers import GEMMA3_SYNC, ServerKind
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
