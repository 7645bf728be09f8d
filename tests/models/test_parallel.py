"""Tensor, pipeline and data parallelism: what is divided, what is replicated, which stage holds which layer."""

import pytest

from decodebench.kv.specs import AttentionSpec, MambaState
from decodebench.models import EngineFlags, ModelError
from decodebench.models.pipeline import partition
from tests.models.configs import DEEPSEEK, LLAMA, NEMOTRON_H, QWEN3_NEXT, ZAMBA2, specs_of


def kv_heads(**flags: int) -> set[int]:
    return {
        spec.num_kv_heads
        for spec in specs_of(LLAMA, **flags).layers.values()
        if isinstance(spec, AttentionSpec)
    }


@pytest.mark.parametrize(("tp", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_kv_heads_are_divided_and_below_one_a_rank_replicated(tp: int, heads: int) -> None:
    assert kv_heads(tensor_parallel_size=tp) == {heads}


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_latent_rows_are_whole_on_every_rank(tp: int) -> None:
    one, many = specs_of(DEEPSEEK), specs_of(DEEPSEEK, tensor_parallel_size=tp)
    assert many.layers == one.layers
    assert many.replicated


def test_data_parallel_engines_have_pools_of_the_same_layers() -> None:
    assert specs_of(DEEPSEEK, data_parallel_size=8).stages == specs_of(DEEPSEEK).stages


def test_dense_layers_are_not_called_replicated() -> None:
    assert not specs_of(LLAMA).replicated


@pytest.mark.parametrize("tp", [3, 5, 32])
def test_a_tensor_parallel_size_that_does_not_fit_is_refused_with_the_numbers(tp: int) -> None:
    with pytest.raises(ModelError, match=f"--tensor-parallel-size {tp} .*16 attention heads of config.json"):
        specs_of(LLAMA, tensor_parallel_size=tp)


def test_kv_heads_that_neither_divide_nor_are_divided_by_the_ranks_are_refused() -> None:
    with pytest.raises(ModelError, match="--tensor-parallel-size 8 and the 12 KV heads"):
        specs_of({**LLAMA, "num_attention_heads": 64, "num_key_value_heads": 12}, tensor_parallel_size=8)


def test_state_is_divided_among_the_ranks() -> None:
    states = [
        spec for spec in specs_of(QWEN3_NEXT, tensor_parallel_size=4).layers.values() if spec.kind == "mamba"
    ]
    assert all(
        isinstance(state, MambaState) and state.shapes == ((3, 2048), (8, 128, 128)) for state in states
    )


def test_mamba2_groups_that_the_ranks_do_not_divide_are_replicated_with_their_heads() -> None:
    """8 groups on 16 ranks become 16: 2,048 channels and 2 x 16 groups of 128, over 16."""
    config = {**NEMOTRON_H, "num_attention_heads": 16}
    states = [
        spec for spec in specs_of(config, tensor_parallel_size=16).layers.values() if spec.kind == "mamba"
    ]
    assert all(isinstance(state, MambaState) and state.shapes == ((3, 384), (2, 64, 128)) for state in states)


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (8, 2, (4, 4)),
        (61, 4, (15, 15, 16, 15)),
        (62, 4, (15, 16, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
        (5, 2, (3, 2)),
    ],
)
def test_layers_are_partitioned_as_get_pp_indices_does(
    layers: int, stages: int, sizes: tuple[int, ...]
) -> None:
    assert partition(layers, EngineFlags(pipeline_parallel_size=stages)) == sizes


def test_every_layer_is_on_one_stage_and_the_drafter_on_the_last() -> None:
    specs = specs_of(DEEPSEEK, pipeline_parallel_size=2, draft_layers=True)
    assert [len(stage) for stage in specs.stages] == [2, 3]
    assert any("layers.4." in name for name in specs.stages[1])


def test_a_given_partition_is_used_and_a_wrong_one_refused() -> None:
    specs = specs_of(LLAMA, pipeline_parallel_size=2, pp_layer_partition=(7, 1))
    assert [len(stage) for stage in specs.stages] == [7, 1]
    with pytest.raises(ModelError, match="VLLM_PP_LAYER_PARTITION 7,2"):
        specs_of(LLAMA, pipeline_parallel_size=2, pp_layer_partition=(7, 2))


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ModelError, match="--pipeline-parallel-size 9 is more than the 8 layers"):
        specs_of(LLAMA, pipeline_parallel_size=9)


def test_a_model_without_pipeline_parallelism_is_refused() -> None:
    with pytest.raises(ModelError, match="Zamba2 does not support pipeline parallelism"):
        specs_of(ZAMBA2, pipeline_parallel_size=2)


@pytest.mark.parametrize(
    "flag", ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "block_size"]
)
def test_a_size_below_one_is_refused_by_its_flag(flag: str) -> None:
    with pytest.raises(ModelError, match=f"--{flag.replace('_', '-')} is 0"):
        EngineFlags(**{flag: 0})  # type: ignore[arg-type]


def test_layers_that_share_a_cache_must_be_on_its_pipeline_stage() -> None:
    gemma4 = {
        **LLAMA,
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "num_kv_shared_layers": 4,
    }
    assert len(specs_of(gemma4).layers) == 8
    with pytest.raises(ModelError, match="layer 8 reads the cache of layer 7, which is on another stage"):
        specs_of(gemma4, pipeline_parallel_size=2, pp_layer_partition=(8, 4))
    with pytest.raises(ModelError, match="'num_kv_shared_layers' is 13"):
        specs_of({**gemma4, "num_kv_shared_layers": 13})
