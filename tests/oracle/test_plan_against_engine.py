"""The plan of every built-in model against what the real engine logs when it starts with it."""

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from decodebench import plan
from decodebench.engine import recipes
from decodebench.engine.models import resolve_model
from decodebench.engine.server import Server, ServerSpec
from decodebench.planner.device import installed_cpu

pytestmark = pytest.mark.engine

IN_EVERY_RUN = ("tiny-granite",)  # its blocks are aligned to a state page: the most rules in one line


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.matrix)
        for name in recipes.names()
    ],
)
def test_the_engine_logs_the_planned_capacity(name: str, tmp_path: Path) -> None:
    model = resolve_model(name)
    planned = plan(
        name, gpu=installed_cpu(), env={k: v for k, v in os.environ.items() if k.startswith("VLLM_")}
    )
    shape = planned.in_force
    assert shape is not None
    spec = ServerSpec(
        model=model.path,
        args=model.vllm_args,
        env=model.env,
        log_path=tmp_path / "server.log",
        startup_timeout_s=560,
    )
    with Server(spec) as server:
        server.start()
    log = (tmp_path / "server.log").read_text(errors="replace")
    capacity = re.search(
        r"KV cache size: ([\d,]+) tokens(?:, Maximum|[\s\S]*?Maximum) concurrency for .*?: ([\d.]+)x", log
    )
    assert capacity is not None, log[-3000:]
    tokens, concurrency = capacity.groups()
    assert int(tokens.replace(",", "")) == shape.pool.logged_tokens
    assert float(concurrency) == round(shape.pool.concurrency, 2)
