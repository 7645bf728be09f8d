"""CPU time that our scheduler hooks add to a decode step, on vLLM's real scheduler and its own objects.

    python benchmarks/hook_cost.py

A cohort of B requests decodes; the hooks that run in every step (`build_connector_meta`, `update_connector_output`) are
timed with the thread's CPU clock, in place. Target: 20 us + 0.1 us x B a step.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from time import thread_time_ns

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.connector.engine import FULL, SLIDING, Engine

STEPS = 200


def timed(hook, spent):
    def call(*args):
        begun = thread_time_ns()
        result = hook(*args)
        spent.append(thread_time_ns() - begun)
        return result

    return call


def measure(batch: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        engine = Engine(
            Path(directory) / "model",
            groups=(FULL, SLIDING),
            num_blocks=batch * 40 + 1,
            max_num_seqs=batch,
            max_num_batched_tokens=8192,
        )
        members = engine.cohort(size=batch, prompt_len=100, max_tokens=STEPS + 10)
        engine.run(until=lambda: len(engine.outputs.get(members[0], ())) >= 5)
        build: list[int] = []
        update: list[int] = []
        connector = engine.connector
        connector.build_connector_meta = timed(connector.build_connector_meta, build)
        connector.update_connector_output = timed(connector.update_connector_output, update)
        for _ in range(STEPS):
            assert len(engine.step()) == batch
    total = sorted((a + b) / 1000 for a, b in zip(build, update, strict=True))
    return {
        "batch": batch,
        "median_us": statistics.median(total),
        "p95_us": total[int(0.95 * len(total))],
        "target_us": 20 + 0.1 * batch,
    }


if __name__ == "__main__":
    rows = [measure(batch) for batch in (1, 256, 1024)]
    print(f"{'batch':>6} {'median us':>10} {'p95 us':>8} {'target us':>10}")
    for row in rows:
        print(f"{row['batch']:>6} {row['median_us']:>10.1f} {row['p95_us']:>8.1f} {row['target_us']:>10.1f}")
    print(json.dumps({"benchmark": "hook_cost", "steps": STEPS, "rows": rows}))
