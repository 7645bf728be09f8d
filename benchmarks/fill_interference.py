"""Time that a fill adds to the steps of requests that are decoding, ours against vLLM's in-tree connector.

    python benchmarks/fill_interference.py [--fills 300] [--model tiny-llama]

Three engines run in processes of their own and take turns (bursts of 30 fills), so that a slow minute falls on all. In
each a batch decodes; again and again four requests of one output token arrive whose fill writes at least 64 MB, and
every engine step is timed. What an arrival adds are the steps from it to its end beyond the median of the neighbouring
steps before it. Not all of that is the fill: the engine admits four long requests, and in the last step they decode
their token, when our fill has ended. The third engine is the control: our connector, which orders and reports every
fill but writes nothing. Ours is what the steps before the last took beyond the control's in the same burst (its
median); the in-tree connector's, which fills and decodes in one step, is what all its steps took beyond all of the
control's. Targets: the upper bound of ours is at most 25 % of the in-tree
median, and steps begin and end while our fill runs.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
from time import perf_counter_ns

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # else vLLM runs the model on every core

CONTEXT = 9_000
FILLERS = 4
DECODING = 4
NEIGHBOURS = 16
OURS = {"kv_connector_module_path": "decodebench.connector"}
CONTROL = "ours, writing nothing"


class Engine:
    """One in-process engine with a batch that never stops decoding."""

    def __init__(self, model, connector):
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        transfer = KVTransferConfig(kv_connector="DecodeBenchConnector", kv_role="kv_both", **connector)
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=str(model),
                dtype="bfloat16",
                enforce_eager=True,
                max_model_len=CONTEXT + 1200,
                max_num_seqs=DECODING + FILLERS,
                enable_prefix_caching=False,
                gpu_memory_utilization=0.1,
                kv_transfer_config=transfer,
            )
        )
        self.made = 0
        self.alive = 0
        self.random = random.Random(0)

    def add(self, prompt_len, max_tokens):
        from vllm import SamplingParams

        self.made += 1
        prompt = {"prompt_token_ids": [self.random.randrange(10, 4000) for _ in range(prompt_len)]}
        self.engine.add_request(
            str(self.made), prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0)
        )
        return str(self.made)

    def step(self):
        begun = perf_counter_ns()
        outputs = self.engine.step()
        return perf_counter_ns() - begun, {out.request_id for out in outputs if out.finished}

    def one_fill(self):
        """What every step from the arrival to the end of the fillers took beyond the usual, ns."""
        if self.alive < NEIGHBOURS + 60:
            for _ in range(DECODING):
                self.add(200, 1000)
            self.alive = 990
            for _ in range(8):
                self.step()
        before = [self.step()[0] for _ in range(NEIGHBOURS)]
        fillers = {self.add(CONTEXT, 1) for _ in range(FILLERS)}
        took = []
        while fillers:
            duration, finished = self.step()
            took.append(duration)
            fillers -= finished
        self.alive -= NEIGHBOURS + len(took)
        usual = statistics.median(before)
        return [duration - usual for duration in took]


def write_nothing():
    """Fills of this process are ordered and reported as always; only the bytes stay as they are."""
    from decodebench.connector.filling import Filler, Outcome

    def run(self, fills):
        groups = range(self.num_groups)
        return Outcome(tuple(sum(each.writes[at].num_blocks for each in fills.values()) for at in groups))

    Filler.run = run


def serve(pipe, model, connector, writes):
    if not writes:
        write_nothing()
    engine = Engine(model, connector)
    pipe.send("ready")
    while (count := pipe.recv()) is not None:
        pipe.send([engine.one_fill() for _ in range(count)])


def upper_bound(values, level=0.95, draws=2000):
    """Upper end of the bootstrap interval of the median."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(level * draws)]


def by_step(fills):
    """What each step from the arrival on took beyond the usual, over the fills that had that many steps."""
    usual = statistics.mode(len(steps) for steps in fills)
    columns = zip(*(steps for steps in fills if len(steps) == usual), strict=True)
    return [round(statistics.median(column) / 1e6, 2) for column in columns]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fills", type=int, default=300)
    parser.add_argument("--burst", type=int, default=30)
    parser.add_argument("--model", default="tiny-llama")
    args = parser.parse_args()
    from decodebench.engine import recipes

    model = recipes.get(args.model).materialise()
    context = multiprocessing.get_context("spawn")
    engines = {}
    for name, connector in (("ours", OURS), ("in-tree", {}), (CONTROL, OURS)):
        ours, theirs = context.Pipe()
        writes = name != CONTROL
        context.Process(target=serve, args=(theirs, model, connector, writes), daemon=True).start()
        engines[name] = ours
    for pipe in engines.values():
        pipe.recv()
    found = {name: [] for name in engines}
    added = {"ours": [], "in-tree": []}
    for _ in range(0, args.fills, args.burst):
        burst = {}
        for name, pipe in engines.items():
            pipe.send(args.burst)
            burst[name] = pipe.recv()
            found[name] += burst[name]
        admission = statistics.median(sum(steps[:-1]) for steps in burst[CONTROL])
        decode = statistics.median(steps[-1] for steps in burst[CONTROL])
        added["ours"] += [(sum(steps[:-1]) - admission) / 1e6 for steps in burst["ours"]]
        added["in-tree"] += [(sum(steps) - admission - decode) / 1e6 for steps in burst["in-tree"]]
    for pipe in engines.values():
        pipe.send(None)
    rows = [
        {
            "connector": name,
            "fills": len(values),
            "added_ms_median": statistics.median(values),
            "added_ms_p90": sorted(values)[int(0.9 * len(values))],
            "upper_bound_ms": upper_bound(values),
            "steps_during_a_fill": statistics.median(len(steps) - 1 for steps in found[name]),
        }
        for name, values in added.items()
    ]
    for row in rows:
        print(row)
    ratio = rows[0]["upper_bound_ms"] / rows[1]["added_ms_median"]
    for name, fills in found.items():
        print(f"{name}: {by_step(fills)} ms more than usual, step by step (medians)")
    print(f"upper bound of ours / median of the in-tree connector: {ratio:.2f} (target: at most 0.25)")
    print(json.dumps({"benchmark": "fill_interference", "model": args.model, "rows": rows, "ratio": ratio}))


if __name__ == "__main__":
    main()
