"""How fast does a fill write, against what the memory can do and against vLLM's own decode-bench connector?

Constant: 256 MB of pages, poisoned before each trial, in runs of neighbouring blocks of 64 KiB to 16 MiB, with gaps
as long as the runs; the yardstick is one `fill_` over as many contiguous bytes of the same pool. Normal: a
granite-like batch of 32 requests of 8,000 tokens (attention pages and Mamba states in one storage), against the
in-tree worker on the same tensors. Trials are interleaved and in random order; medians, with the least and the most of
all trials. A write's time includes preparing the block ids. `--clock cpu` (one thread on a CPU only) counts the
thread's own time, which other processes on the machine disturb less.

    python benchmarks/fill_bandwidth.py                   # one thread, as in an engine
    python benchmarks/fill_bandwidth.py --device cuda --mb 4096

Prints a table, then one JSON line. The in-tree part needs vLLM and is left out without it.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter, thread_time
from types import SimpleNamespace

import torch

from decodebench.fill import Constant, Content, GroupPages, LayerPages, Normal
from decodebench.kv.content import Numbers, PageContent, State, TypedPart
from decodebench.kv.writes import GroupWrites

PAGE_BYTES, LAYERS, ROWS = 1 << 16, 8, 64
RUNS_KIB = [64, 128, 256, 512, 1024, 4096, 16384]
SHORT_RUN_PAGES_KIB = [4, 16]
TARGET_CONSTANT, TARGET_NORMAL = 0.8, 5.0

Job = Callable[[], object]


def arguments(text: str, of_mb: str) -> argparse.Namespace:
    """The command line of a benchmark that times fills; sets torch's threads."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--mb", default=256, type=int, help=of_mb)
    parser.add_argument("--trials", default=15, type=int)
    parser.add_argument("--threads", default=1, type=int, help="torch threads")
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"])
    args = parser.parse_args()
    if args.clock == "cpu" and (args.device.type != "cpu" or args.threads != 1):
        parser.error("--clock cpu measures one thread on a CPU; drop it, --device or --threads")
    torch.set_num_threads(args.threads)
    return args


def main() -> int:
    args = arguments(__doc__, "bytes that a constant fill writes, in 10^6")
    constant = {
        **constant_rates(args, SHORT_RUN_PAGES_KIB, page_bytes=4096),
        **constant_rates(args, RUNS_KIB, page_bytes=PAGE_BYTES),
    }
    normal = normal_rates(args)
    print_table(constant, normal, args.clock)
    worst = min(constant[f"runs of {kib} KiB"]["ratio"] for kib in RUNS_KIB)
    speedup = normal["ours"]["gb_s"] / normal["in-tree"]["gb_s"] if "in-tree" in normal else None
    verdict = {
        "constant_worst_ratio": round(worst, 3),
        "constant_mixed_ratio": round(constant["mixed runs of >= 64 KiB"]["ratio"], 3),
        "normal_speedup": speedup and round(speedup, 1),
    }
    print(
        json.dumps(
            {
                "device": str(args.device),
                "clock": args.clock,
                "constant": constant,
                "normal": normal,
                **verdict,
            }
        )
    )
    return 0


def constant_rates(
    args: argparse.Namespace, runs_kib: list[int], page_bytes: int
) -> dict[str, dict[str, float]]:
    blocks = args.mb * 10**6 // LAYERS // page_bytes
    pool = torch.empty(LAYERS, 2 * blocks + 512, page_bytes, dtype=torch.uint8, device=args.device)
    layers = [
        attention_layer(str(i), each.view(torch.bfloat16).view(len(each), 1, ROWS, -1))
        for i, each in enumerate(pool)
    ]
    content = Constant(0.015)
    content.prepare(layers)
    group = GroupPages.of(layers, block_size=ROWS)
    jobs: dict[str, Job] = {"one fill_": lambda: pool.view(-1)[: LAYERS * blocks * page_bytes].fill_(60)}
    for kib in runs_kib:
        length = (kib << 10) // page_bytes
        ids = [block for first in range(1, 2 * blocks, 2 * length) for block in range(first, first + length)]
        jobs[f"runs of {kib} KiB"] = fill_job(group, content, ids[:blocks])
    if page_bytes == PAGE_BYTES:
        jobs["mixed runs of >= 64 KiB"] = fill_job(group, content, mixed_runs(blocks))
    seconds = interleaved(jobs, args, lambda: pool.fill_(0xFF))
    written = LAYERS * blocks * page_bytes
    yardstick = seconds.pop("one fill_")
    rates = {"one fill_" + (f", {page_bytes} B pages"): summary(yardstick, written)}
    for name, times in seconds.items():
        ratios = [fill / own for fill, own in zip(yardstick, times, strict=True)]
        rates[name] = {
            **summary(times, written),
            "ratio": median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }
    return rates


def mixed_runs(blocks: int) -> list[int]:
    """Run lengths from 1 to 64 pages, evenly in the exponent, with gaps of one page."""
    draw, ids, at = random.Random(0), [], 1
    while len(ids) < blocks and at < 2 * blocks:
        length = round(2 ** draw.uniform(0, 6))
        ids += range(at, at + length)
        at += length + 1
    return ids[:blocks]


def normal_rates(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """2 attention and 6 Mamba layers over one storage; blocks of 400 tokens, 20 of them and a state a request."""
    requests, per_request, page = 32, 20, 400 * 2 * 64 * 2
    blocks = requests * (per_request + 1) + 1
    state = State((TypedPart("bfloat16", (3, 1152)), TypedPart("bfloat16", (16, 64, 32))))
    raw = torch.empty(6, blocks, page, dtype=torch.int8, device=args.device)
    caches: dict[str, torch.Tensor] = {}
    for i in range(6):
        caches[f"mamba.{i}"] = raw[i, :, : state.num_bytes].view(blocks, 1, 1, -1)
    for i in range(2):
        caches[f"attn.{i}"] = raw[i].view(torch.bfloat16).view(blocks, 2, 400, 64 * 2 // 2)
    attention = [attention_layer(name, cache) for name, cache in caches.items() if name.startswith("attn")]
    mamba = [pages_of(n, c, page, 1, state) for n, c in caches.items() if n.startswith("mamba")]
    ids = list(range(1, blocks))
    tables = [ids[i * per_request : (i + 1) * per_request] for i in range(requests)]
    states = ids[requests * per_request :]

    content = Normal(0.0, 0.02, seed=0)
    content.prepare([*attention, *mamba])
    groups = GroupPages.of(attention, block_size=400), GroupPages.of(mamba, block_size=400)
    writes = [GroupWrites(whole=table) for table in tables], [GroupWrites(whole=[block]) for block in states]

    def ours() -> None:
        for group, each in zip(groups, writes, strict=True):
            group.write(content, group.prepare(each))

    jobs: dict[str, Job] = {"ours": ours}
    in_tree = in_tree_job(caches, tables, states)
    if in_tree is not None:
        jobs["in-tree"] = in_tree
    seconds = interleaved(jobs, args, lambda: raw.fill_(-1))
    written = 2 * requests * per_request * page + 6 * requests * page
    return {name: summary(times, written) for name, times in seconds.items()}


def in_tree_job(caches: dict[str, torch.Tensor], tables: list[list[int]], states: list[int]) -> Job | None:
    """One step of vLLM's own worker on the same tensors and blocks; None without vLLM."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1 import decode_bench_connector as in_tree
        from vllm.v1.kv_cache_interface import FullAttentionSpec
    except ImportError:
        return None
    spec = FullAttentionSpec(block_size=400, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
    names = [[n for n in caches if n.startswith(kind)] for kind in ("attn", "mamba")]
    groups = [SimpleNamespace(layer_names=each, kv_cache_spec=spec) for each in names]
    values = {"fill_mean": 0.0, "fill_std": 0.02}
    worker = in_tree.DecodeBenchConnectorWorker(
        SimpleNamespace(
            kv_transfer_config=SimpleNamespace(
                get_from_extra_config=lambda key, default: values.get(key, default)
            ),
            cache_config=SimpleNamespace(cache_dtype="auto"),
        ),
        SimpleNamespace(kv_cache_groups=groups),
    )
    worker.register_kv_caches(caches)
    requests = {str(i): ((table, [states[i]]), 8000) for i, table in enumerate(tables)}
    metadata = in_tree.DecodeBenchConnectorMetadata(reqs_to_fill=requests)
    return lambda: worker.start_fill_kv(metadata)


def attention_layer(name: str, cache: torch.Tensor) -> LayerPages:
    return pages_of(name, cache, cache[0].numel() * cache.element_size(), cache.shape[2], Numbers("bfloat16"))


def pages_of(name: str, cache: torch.Tensor, page_bytes: int, rows: int, content: PageContent) -> LayerPages:
    return LayerPages.of(
        name, cache, num_blocks=len(cache), page_bytes=page_bytes, rows_per_block=rows, content=content
    )


def fill_job(group: GroupPages, content: Content, ids: list[int]) -> Job:
    return lambda: group.write(content, group.prepare([GroupWrites(whole=ids)]))


def interleaved(jobs: dict[str, Job], args: argparse.Namespace, poison: Job) -> dict[str, list[float]]:
    """Seconds of each job in each trial; a trial runs every job once, in random order, after poisoning the pages."""
    order, seconds = random.Random(0), {name: [] for name in jobs}
    synchronize = torch.cuda.synchronize if args.device.type == "cuda" else lambda: None
    clock = perf_counter if args.clock == "wall" else thread_time
    for trial in range(args.trials + 1):  # the first one is thrown away
        for name in order.sample(sorted(jobs), len(jobs)):
            poison()
            synchronize()
            start = clock()
            jobs[name]()
            synchronize()
            if trial:
                seconds[name].append(clock() - start)
    return seconds


def summary(seconds: list[float], num_bytes: int) -> dict[str, float]:
    rates = [num_bytes / each / 1e9 for each in seconds]
    return {"gb_s": median(rates), "gb_s_low": min(rates), "gb_s_high": max(rates)}


def print_table(
    constant: dict[str, dict[str, float]], normal: dict[str, dict[str, float]], clock: str
) -> None:
    head = f"constant fill, {clock} time"
    print(f"{head:28} {'GB/s':>6} {'least':>6} {'most':>6}   of one fill_ (target {TARGET_CONSTANT})")
    for name, row in constant.items():
        ratio = f"   {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" if "ratio" in row else ""
        print(f"{name:28} {row['gb_s']:6.2f} {row['gb_s_low']:6.2f} {row['gb_s_high']:6.2f}{ratio}")
    print(f"{'normal, granite-like 32x8000':28} (target {TARGET_NORMAL:g} x in-tree)")
    for name, row in normal.items():
        print(f"{name:28} {row['gb_s']:6.2f} {row['gb_s_low']:6.2f} {row['gb_s_high']:6.2f}")


if __name__ == "__main__":
    sys.exit(main())
