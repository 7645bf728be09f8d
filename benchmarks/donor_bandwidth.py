"""How fast does a fill from donors copy, against `torch.Tensor.copy_` of the same bytes and vLLM's own connector?

Pools like those the engine lays out for three built-in models: tiny-gemma3 (six groups on one storage),
tiny-granite (attention pages and Mamba states on one storage), tiny-deepseek-v4 (six groups of packed rows, blocks of
4 to 256 tokens, layers interleaved in a block). A batch of requests of one context is filled from donors held in host
memory: from one donor each (contiguous: neighbouring blocks take neighbouring pages), or from 16 mixed page by page
into shuffled blocks (scattered). The yardstick is one `copy_` of as many contiguous bytes from host memory into the
pool. Trials are interleaved and in random order, the pool is poisoned before each; a time includes preparing the
blocks.

    python benchmarks/donor_bandwidth.py                   # one thread, as in an engine
    python benchmarks/donor_bandwidth.py --device cuda --mb 4096

Prints a table, then one JSON line. The in-tree part (a fill of the same blocks) needs vLLM and is left out without it.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from fill_bandwidth import Job, arguments, interleaved, summary

from decodebench.fill import DonorBank, GroupPages, LayerPages
from decodebench.kv.content import Numbers, PackedRows, PageContent, State, TypedPart
from decodebench.kv.writes import GroupWrites, Sources

TARGETS = {"contiguous": 0.8, "scattered": 0.5}
DONORS = 16


@dataclass(frozen=True)
class LayerShape:
    """Pages of one layer: `shape` without blocks, in elements of `dtype`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    content: PageContent

    @property
    def page_bytes(self) -> int:
        return torch.empty(0, dtype=self.dtype).element_size() * torch.Size(self.shape).numel()


@dataclass(frozen=True)
class Model:
    """Groups as (layers, tokens of a block, blocks a request of the context holds)."""

    name: str
    groups: tuple[tuple[tuple[LayerShape, ...], int, int], ...]


def attention(rows: int, numbers: int) -> LayerShape:
    return LayerShape((1, rows, numbers), torch.bfloat16, Numbers("bfloat16"))


def packed(rows: int, row_bytes: int, layout: str) -> LayerShape:
    return LayerShape((1, rows, row_bytes), torch.uint8, PackedRows(layout, row_bytes))


def models() -> list[Model]:
    """Groups, block sizes and page shapes of the recipes on a CPU, and the blocks of a request of 4,000 tokens."""
    gemma = attention(128, 2 * 2 * 64)
    state = State((TypedPart("bfloat16", (3, 640)), TypedPart("float32", (8, 64, 64))))
    mamba = LayerShape((1, 1, state.num_bytes), torch.int8, state)
    granite = attention(384, 2 * 2 * 64)
    latent, index = packed(64, 584, "fp8_ds_mla_v4"), packed(64, 132, "indexer_fp8")
    rows2 = packed(2, 584, "fp8_ds_mla_v4")
    numbers4 = LayerShape((1, 4, 2048), torch.float32, Numbers("float32"))
    numbers8 = LayerShape((1, 8, 1024), torch.float32, Numbers("float32"))
    return [
        Model("tiny-gemma3", (*[((gemma,), 128, 5)] * 5, ((gemma,), 128, 32))),
        Model("tiny-granite", (*[((mamba,), 384, 1)] * 3, ((granite,), 384, 11))),
        Model(
            "tiny-deepseek-v4",
            (
                ((latent, latent), 64, 3),
                ((latent, latent), 64, 3),
                ((latent,), 64, 3),
                ((latent, index, rows2, latent, index), 256, 16),
                ((numbers4, numbers4, numbers4, numbers4), 4, 2),
                ((numbers8,), 8, 16),
            ),
        ),
    ]


@dataclass(frozen=True)
class Pool:
    """All groups of a model on one storage, layers of a group interleaved inside a block."""

    raw: torch.Tensor
    groups: dict[int, GroupPages]
    caches: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: Model, num_blocks: int, device: torch.device) -> "Pool":
        stride = max(sum(layer.page_bytes for layer in layers) for layers, _, _ in model.groups)
        stride = -(-stride // 64) * 64
        raw = torch.empty(num_blocks * stride, dtype=torch.uint8, device=device)
        groups, caches = {}, {}
        for number, (layers, block_size, _) in enumerate(model.groups):
            pages, offset = [], 0
            for at, layer in enumerate(layers):
                size = torch.empty(0, dtype=layer.dtype).element_size()
                inner = torch.empty(layer.shape, device="meta").stride()
                shape, strides = (num_blocks, *layer.shape), (stride // size, *inner)
                cache = raw.view(layer.dtype).as_strided(shape, strides, offset // size)
                name = f"group{number}.layer{at}"
                caches[name] = cache
                rows = 1 if isinstance(layer.content, State) else layer.shape[1]
                pages.append(
                    LayerPages.of(
                        name, cache, num_blocks=num_blocks, page_bytes=layer.page_bytes,
                        rows_per_block=rows, content=layer.content,
                    )
                )  # fmt: skip
                offset += layer.page_bytes
            groups[number] = GroupPages.of(pages, block_size=block_size)
        return cls(raw, groups, caches)


def rates(model: Model, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    per_request = sum(
        blocks * sum(layer.page_bytes for layer in layers) for layers, _, blocks in model.groups
    )
    requests = max(1, args.mb * 10**6 // per_request)
    needed = requests * sum(blocks for _, _, blocks in model.groups)
    pool = Pool.of(model, needed + DONORS * sum(blocks for _, _, blocks in model.groups) + 1, args.device)
    bank = DonorBank(pool.groups)
    at = 1
    for donor in range(DONORS):
        table = []
        for _, _, blocks in model.groups:
            table.append(list(range(at, at + blocks)))
            at += blocks
        bank.keep(donor, table)
    ids = list(range(1, needed + 1))
    jobs: dict[str, Job] = {}
    for name in TARGETS:
        order = ids if name == "contiguous" else random.Random(1).sample(ids, len(ids))
        jobs[name] = fill_job(model, bank, order, requests, mixed=name == "scattered")
    num_bytes = requests * per_request
    source = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=args.device.type == "cuda").fill_(60)
    jobs["one copy_"] = lambda: pool.raw[:num_bytes].copy_(source)
    in_tree = in_tree_job(model, pool, ids, requests)
    if in_tree is not None:
        jobs["in-tree"] = in_tree
    seconds = interleaved(jobs, args, lambda: pool.raw.fill_(0xFF))
    found = {name: summary(times, num_bytes) for name, times in seconds.items()}
    for name in TARGETS:
        ratios = sorted(copy / own for copy, own in zip(seconds["one copy_"], seconds[name], strict=True))
        found[name] |= {"ratio": ratios[len(ratios) // 2], "low": ratios[0], "high": ratios[-1]}
    found["one copy_"]["mb"] = num_bytes / 1e6
    return found


def tables(model: Model, ids: list[int], requests: int) -> list[list[list[int]]]:
    """Block ids of each request in each group, handed out request by request as an engine does."""
    left = iter(ids)
    return [[[next(left) for _ in range(blocks)] for _, _, blocks in model.groups] for _ in range(requests)]


def fill_job(model: Model, bank: DonorBank, ids: list[int], requests: int, mixed: bool) -> Job:
    draw = random.Random(2)
    planned: list[list[tuple[GroupWrites, Sources]]] = [[] for _ in model.groups]
    for request, table in enumerate(tables(model, ids, requests)):
        for group, blocks in enumerate(table):
            donors = [draw.randrange(DONORS) if mixed else request % DONORS for _ in blocks]
            planned[group].append((GroupWrites(whole=blocks), Sources(donors, list(range(len(blocks))))))

    def job() -> None:
        for group, fills in enumerate(planned):
            bank.write(group, bank.prepare(group, fills))

    return job


def in_tree_job(model: Model, pool: Pool, ids: list[int], requests: int) -> Job | None:
    """vLLM's own connector filling the same blocks with its constant; None without vLLM."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1 import decode_bench_connector as in_tree
        from vllm.v1.kv_cache_interface import FullAttentionSpec
    except ImportError:
        return None
    groups = [
        SimpleNamespace(
            layer_names=[name for name in pool.caches if name.startswith(f"group{number}.")],
            kv_cache_spec=FullAttentionSpec(
                block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.bfloat16
            ),
        )
        for number, (_, block_size, _) in enumerate(model.groups)
    ]
    worker = in_tree.DecodeBenchConnectorWorker(
        SimpleNamespace(
            kv_transfer_config=SimpleNamespace(get_from_extra_config=lambda key, default: default),
            cache_config=SimpleNamespace(cache_dtype="auto"),
        ),
        SimpleNamespace(kv_cache_groups=groups),
    )
    worker.register_kv_caches(pool.caches)
    asked = {
        str(request): (tuple(table), model.groups[-1][1] * len(table[-1]))
        for request, table in enumerate(tables(model, ids, requests))
    }
    metadata = in_tree.DecodeBenchConnectorMetadata(reqs_to_fill=asked)
    return lambda: worker.start_fill_kv(metadata)


def main() -> int:
    args = arguments(__doc__, "bytes that a fill writes, in 10^6")
    found = {}
    print(f"{f'donor fill, {args.clock} time':36} {'GB/s':>6} {'least':>6} {'most':>6}   of one copy_")
    for model in models():
        found[model.name] = rates(model, args)
        for name, row in found[model.name].items():
            ratio = ""
            if "ratio" in row:
                ratio = (
                    f"   {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}] (target {TARGETS[name]})"
                )
            head = f"{model.name} {name}"
            print(f"{head:36} {row['gb_s']:6.2f} {row['gb_s_low']:6.2f} {row['gb_s_high']:6.2f}{ratio}")
    print(json.dumps({"device": str(args.device), "clock": args.clock, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
