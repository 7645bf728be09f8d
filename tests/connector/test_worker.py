"""The worker half on tensors laid out by vLLM's own code, the pool poisoned before (cases F3 to F11, rule 5.4)."""

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    UniformTypeKVCacheSpecs,
)

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.layout import GroupLayers, group_shape
from decodebench.connector.metadata import DecodeBenchConnectorMetadata, RequestFill, WorkerReport
from decodebench.connector.worker import WorkerHalf
from decodebench.kv.blocks import select
from tests.connector.engine import FULL, SLIDING, state_spec

BLOCKS = 12
LATENT = MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
NUMBER = torch.tensor(0.015, dtype=torch.bfloat16)


class Pool:
    """One storage that all groups share, poisoned; every layer's view as vLLM 0.32 hands it over."""

    def __init__(self, specs, config=None, async_fill=True, poison=0xFF):
        self.specs = specs
        page = max(spec.page_size_bytes for spec in specs)
        self.raw = torch.full((BLOCKS, page), poison, dtype=torch.uint8)
        self.config = KVCacheConfig(
            num_blocks=BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)],
        )
        self.worker = WorkerHalf(
            config or ConnectorConfig(async_fill=async_fill), self.config, "auto", rank=0
        )
        self.worker.register({f"layer{i}": self.view(spec) for i, spec in enumerate(specs)})

    def view(self, spec):
        if isinstance(spec, MambaSpec):
            return self.raw.view(torch.int8)[:, None, None, : spec.page_size_bytes]
        shape = (BLOCKS, spec.num_heads, spec.num_states, spec.state_content_size_bytes)
        inner = (spec.num_states * spec.state_content_size_bytes, spec.state_content_size_bytes, 1)
        strided = torch.as_strided(self.raw, shape, (self.raw.stride(0), *inner))
        return strided.view(spec.dtype)

    def fill(self, tables, local, total, step=0):
        """Fill tokens [local, total) of one request whose block tables are `tables`; returns the job's report."""
        shapes = [group_shape(spec, i) for i, spec in enumerate(self.specs)]
        writes = tuple(select(shape, ids, local, total) for shape, ids in zip(shapes, tables, strict=True))
        self.worker.start(DecodeBenchConnectorMetadata(step, {"r": RequestFill(writes, total - local)}))
        return self.wait()

    def wait(self):
        for _ in range(10_000):
            self.worker.take_finished()
            report = self.worker.report()
            if report.jobs:
                return report.jobs[0]
            torch.empty(1).fill_(0)
        raise AssertionError("the fill was never reported")

    def untouched(self, *blocks):
        return bool((self.raw[list(blocks)] == 0xFF).all())


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def pool(request):
    return lambda specs, **kwargs: Pool(specs, async_fill=request.param, **kwargs)


def test_each_group_is_written_through_its_own_blocks_and_nothing_else(pool):
    p = pool((FULL, SLIDING, state_spec()))
    job = p.fill([[1, 2, 3], [0, 4, 5], [6]], local=0, total=40)
    assert (job.pages, job.error) == ((3, 2, 1), None)
    assert p.untouched(0, 7, 8, 9, 10, 11)
    assert (
        p.view(FULL)[[1, 2, 3]] == NUMBER
    ).all()  # the CPU's attention mixes rows: no row of block 3 is a later token


def test_rows_behind_the_last_token_are_zero(pool):
    p = pool((LATENT,))
    p.fill([[1, 2, 3]], local=0, total=40)
    rows = p.view(LATENT)
    assert (rows[[1, 2]] == NUMBER).all()
    assert (rows[3][:, :8] == NUMBER).all()
    assert (rows[3][:, 8:] == 0).all()


def test_a_locally_computed_part_of_a_block_survives(pool):
    """40-token prompt, 12 tokens hit locally: the shared block's cached part must stay."""
    p = pool((LATENT,))
    p.fill([[1, 2, 3]], local=12, total=39)
    rows = p.view(LATENT)
    assert torch.isnan(rows[1][:, :12]).all()
    assert (rows[1][:, 12:] == NUMBER).all()


def test_a_computed_part_whose_rows_are_mixed_with_the_fills_is_refused_with_the_cause(pool):
    p = pool((FULL,))
    job = p.fill([[1, 2, 3]], local=12, total=39)
    assert "let the computed tokens end with a block" in job.error
    assert p.untouched(1)


def test_every_byte_of_a_claimed_block_is_written(pool):
    """The engine does not zero these blocks: padding, tail rows and the rest of a state page must not stay NaN."""
    padded = FullAttentionSpec(
        block_size=16,
        num_kv_heads=2,
        head_size=32,
        dtype=torch.bfloat16,
        page_size_padded=FULL.page_size_bytes + 96,
    )
    state = MambaSpec(
        block_size=4096, shapes=((4, 8), (16,)), dtypes=(torch.float32, torch.bfloat16), page_size_padded=512
    )
    p = pool((padded, state))
    p.fill([[1, 2], [3]], local=0, total=20)
    page = padded.page_size_bytes
    assert not (p.raw[1, :page] == 0xFF).any()
    assert (p.raw[1, FULL.page_size_bytes : page] == 0).all()
    assert (p.raw[2, FULL.page_size_bytes : page] == 0).all()
    numbers = 4 * 8 * 4 + 16 * 2
    assert (p.raw[3, numbers:512] == 0).all()


def test_a_state_is_typed_by_the_specs_shapes_not_by_its_raw_view(pool):
    p = pool((state_spec(),))
    p.fill([[2]], local=0, total=100)
    raw = p.raw[2]
    assert (raw[: 4 * 8 * 4].view(torch.float32) == 0.015).all()
    assert (raw[128 : 128 + 32].view(torch.bfloat16) == torch.tensor(0.015, dtype=torch.bfloat16)).all()
    assert p.untouched(0, 1, 3)


def test_speculative_scratch_is_zeroed_and_only_the_state_gets_content(pool):
    p = pool((state_spec("align", block_size=16, spec_blocks=2),))
    p.fill([[0, 0, 9, 10, 11]], local=0, total=48)
    assert (p.raw[9][:128].view(torch.float32) == 0.015).all()
    page = state_spec().page_size_bytes
    assert (p.raw[[10, 11], :page] == 0).all()


def test_a_circular_buffer_is_zeroed_whole(pool):
    """A row packs an int64 position before its keys: any other value is a wild index."""
    ring = CircularBufferSpec(block_size=8, num_kv_heads=1, head_size=8, dtype=torch.uint8, head_size_v=8)
    p = pool((ring,))
    job = p.fill([[5]], local=0, total=100)
    assert job.pages == (1,)
    assert (p.raw[5, : ring.page_size_bytes] == 0).all()
    assert p.untouched(4, 6)


def test_layers_of_one_group_may_store_fewer_rows_for_the_same_tokens(pool):
    """Compressed MLA: 64 and 2 states in a block of 256 tokens; a cut block keeps whole states only."""
    specs = {
        "layer0": MLAAttentionSpec(
            block_size=256, num_kv_heads=1, head_size=8, dtype=torch.bfloat16, tokens_per_state=4
        ),
        "layer1": MLAAttentionSpec(
            block_size=256, num_kv_heads=1, head_size=8, dtype=torch.bfloat16, tokens_per_state=128
        ),
    }
    pages = {
        name: torch.full((BLOCKS, 1, spec.num_states, 8), torch.nan, dtype=torch.bfloat16)
        for name, spec in specs.items()
    }
    config = KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[
            KVCacheGroupSpec(list(specs), UniformTypeKVCacheSpecs(block_size=256, kv_cache_specs=specs))
        ],
    )
    worker = WorkerHalf(ConnectorConfig(async_fill=False), config, "auto", rank=0)
    worker.register(pages)
    writes = (select(group_shape(config.kv_cache_groups[0].kv_cache_spec, 0), [1, 2], 0, 256 + 130),)
    worker.start(DecodeBenchConnectorMetadata(0, {"r": RequestFill(writes, 386)}))
    worker.take_finished()
    report = worker.report()
    assert report.jobs[0].pages == (2,)
    sizes = [spec.page_size_bytes for spec in specs.values()]
    assert report.layers == GroupLayers((sum(sizes),), (("4", "128"),))
    assert worker.report().layers is None
    assert [int((pages["layer0"][block] != 0).sum()) // 8 for block in (1, 2)] == [64, 130 // 4]
    assert [int((pages["layer1"][block] != 0).sum()) // 8 for block in (1, 2)] == [2, 1]


def test_layers_that_one_of_two_workers_tells_are_known():
    told = WorkerReport(0, layers=GroupLayers((8, 20), (("1",), ("4", "128"))))
    assert told.aggregate(WorkerReport(0)).layers == WorkerReport(0).aggregate(told).layers == told.layers


def test_normal_content_is_seeded(pool):
    config = ConnectorConfig(fill_mean=1.0, fill_std=0.5, seed=3, async_fill=False)
    first, again, other = (
        Pool((FULL,), config=each)
        for each in (config, config, ConnectorConfig(1.0, 0.5, seed=4, async_fill=False))
    )
    for each in (first, again, other):
        each.fill([[1, 2]], local=0, total=32)
    assert torch.equal(first.raw[1:3], again.raw[1:3])
    assert not torch.equal(first.raw[1:3], other.raw[1:3])
    values = first.view(FULL)[1:3].float()
    assert abs(values.mean() - 1.0) < 0.1
    assert abs(values.std() - 0.5) < 0.1


def test_a_released_request_is_named_once():
    p = Pool((FULL,))
    p.worker.start(DecodeBenchConnectorMetadata(0, release=("a", "b")))
    assert p.worker.take_finished() == (None, {"a", "b"})
    assert p.worker.take_finished() == (None, None)


def test_a_fill_that_fails_is_reported_with_its_cause():
    p = Pool((FULL,))
    job = p.fill([[BLOCKS + 3]], local=0, total=16)
    assert job.pages == ()
    assert "block" in job.error


@pytest.mark.parametrize("cache", [None, {"k": 1}, 7])
def test_an_unknown_container_is_an_error_that_names_the_layer(cache):
    config = KVCacheConfig(
        num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["model.x"], FULL)]
    )
    worker = WorkerHalf(ConnectorConfig(), config, "auto", rank=0)
    with pytest.raises(ValueError, match=r"model\.x"):
        worker.register({"model.x": cache})


def test_a_missing_layer_and_an_unknown_layout_are_named():
    config = KVCacheConfig(
        num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["model.x"], FULL)]
    )
    with pytest.raises(ValueError, match=r"model\.x"):
        WorkerHalf(ConnectorConfig(), config, "auto", rank=0).register({})
    packed = FullAttentionSpec(
        block_size=16, num_kv_heads=2, head_size=32, dtype=torch.uint8, state_content_bytes=40
    )
    config = KVCacheConfig(
        num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["model.y"], packed)]
    )
    with pytest.raises(ValueError, match=r"model\.y"):
        WorkerHalf(ConnectorConfig(), config, "nvfp4", rank=0)
