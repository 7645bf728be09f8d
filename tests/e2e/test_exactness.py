"""The promise: from the release on, every engine step of the window decodes exactly the cohort, and nothing else."""

import numpy as np
import pytest

from decodebench.bench.client import Client, CohortRequest
from decodebench.bench.forecast import forecast, periods
from decodebench.bench.grid import grid
from decodebench.bench.outcome import Outcome
from decodebench.bench.settings import Settings
from decodebench.bench.window_plan import WindowPlan
from decodebench.engine import recipes
from decodebench.engine.preflight import plan_command
from tests.e2e.servers import GEMMA3, Running, ServerKind, on

pytest.importorskip("vllm", reason="runs vLLM's own server")
pytestmark = pytest.mark.engine

BATCH = 8
SMALL = ("--max-num-seqs", "16")
DEFAULT = (
    "tiny-granite",
    "tiny-deepseek-v2",
    "tiny-deepseek-v4",
)  # beside tiny-gemma3, on its server of all cases
CACHING = {"on": "--enable-prefix-caching", "off": "--no-enable-prefix-caching"}


def plain(recipe: str, caching: str) -> ServerKind:
    return ServerKind(f"{recipe}-prefix-caching-{caching}", recipe, (*SMALL, CACHING[caching]))


def marked(kind: ServerKind, default: bool):
    return pytest.param(kind, id=str(kind), marks=[] if default else pytest.mark.matrix)


KINDS = [
    pytest.param(GEMMA3, id=str(GEMMA3)),
    *(
        marked(plain(recipe, caching), recipe in DEFAULT and caching == "on")
        for recipe in recipes.names()
        for caching in CACHING
        if (recipe, caching) != ("tiny-gemma3", "on")  # that is GEMMA3
    ),
]


def effort_on(server: Running) -> Settings:
    """Context 4,000; DeepSeek-V4 takes its kernels through an interpreter on the CPU, so 1,000 and few steps."""
    slow = "deepseek-v4" in server.target.model
    return Settings((BATCH,), (1_000,), window_steps=8) if slow else Settings((BATCH,), (4_000,))


def plan_for(server: Running) -> WindowPlan:
    effort = effort_on(server)
    return server.plan(effort.context_lens[0], effort.window_steps)


def send_cohort(
    server: Running, plan: WindowPlan, name: str, batch: int = BATCH
) -> tuple[CohortRequest, Outcome]:
    """One cohort the way `decodebench run` sends and judges it, on every rank."""
    ranks = len(server.engine.ranks)
    cohort = CohortRequest(
        name, batch, ranks, plan, server.numbers(batch * ranks), timeout_s=300, stall_timeout_s=200
    )
    client = Client(server.target, server.source, f"e2e-{name}", server.server.check, lambda activity: None)
    answers = client.send(cohort)
    return cohort, Outcome.of(0, cohort, answers, server.engine.limits, server.engine.filled_groups)


def assert_exact(outcome: Outcome, plan: WindowPlan, batch: int = BATCH, ranks: int = 1) -> None:
    assert outcome.fault is None
    assert outcome.filled["pages_written"] == outcome.filled["pages_planned"]
    # A noisy machine may make a window drift; what it decoded does not depend on that.
    assert outcome.judged.verdict.rule in (None, "drifting"), outcome.judged.verdict.reason
    assert len(outcome.judged.windows) == ranks
    for window in outcome.judged.windows:
        rows = window.rows
        assert len(rows) == plan.length
        assert np.all(rows.decode_tokens == batch)
        assert np.all(rows.num_reqs == batch)
        for nothing in (
            rows.prefill_tokens,
            rows.preempted,
            rows.foreign_reqs,
            rows.fills_in_flight,
            rows.gated,
        ):
            assert not nothing.any()
        assert np.array_equal(rows.context_min, plan.prompt_len + window.start + np.arange(plan.length))


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_every_step_of_the_window_decodes_exactly_the_cohort(server):
    plan = plan_for(server)
    _, outcome = send_cohort(server, plan, "exact")
    assert sum(outcome.filled["pages_written"]) > 0
    assert_exact(outcome, plan)
    effort = effort_on(server)
    on_paper = forecast(server.command, grid(effort.batch_sizes, effort.context_lens), effort).points[0]
    assert on_paper.window == plan, "a dry run shows another window than is measured"


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_every_layer_of_a_group_is_told(server):
    """Layers may differ, and the engine's scheduler knows one of them: the workers tell."""
    groups = plan_command(server.command).in_force.pool.groups
    assert server.engine.first["donor_bank"]["page_bytes"] == [group.page_bytes for group in groups]
    assert server.engine.periods == periods(groups)


@pytest.mark.matrix
@on(ServerKind("tiny-llama4-hybrid", "tiny-llama4", SMALL))
def test_chunked_attention_runs_with_the_hybrid_manager_really_on(server):
    assert server.engine.first["hybrid_kv_cache_manager"] is True
    kinds = {group["kind"] for group in server.engine.first["groups"]}
    assert len(kinds) > 1
    plan = server.plan(4_000)
    assert_exact(send_cohort(server, plan, "hybrid")[1], plan)
