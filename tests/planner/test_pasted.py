"""A `vllm serve` line is read as vLLM reads it, as far as the cache goes."""

import shlex

import pytest

from decodebench.errors import UserError
from decodebench.planner.pasted import PastedLine, read_pasted


def read(line: str) -> PastedLine:
    return read_pasted(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/model -tp 4 --max-model-len 128k",
        "vllm serve -tp 4 --max-model-len 128k --model org/model",
        "vllm serve -tp 4 org/model --max-model-len 128k",
        "vllm serve --tensor_parallel_size=4 --max_model_len=128k org/model",
        "python -m vllm.entrypoints.openai.api_server --model org/model -tp 4 --max-model-len 128k",
        "/opt/bin/vllm serve org/model --tensor-parallel-size 4 --max-model-len 128000",
        "docker run --gpus all -p 8000:8000 --ipc=host vllm/vllm-openai:v0.32.0 --model org/model -tp 4 "
        "--max-model-len 128k",
        "podman run --gpus all docker.io/vllm/vllm-openai:latest org/model -tp 4 --max-model-len 128k",
    ],
)
def test_spellings_of_one_line_read_alike(line: str) -> None:
    found = read(line)
    assert found.model == "org/model"
    assert found.arguments == {"tensor_parallel_size": 4, "max_model_len": 128000}


def test_short_names_switches_and_json_are_read() -> None:
    found = read(
        "vllm serve m/m -dp 8 -pp 2 -dcp 2 -ep --no-enable-prefix-caching --no-disable-hybrid-kv-cache-manager "
        """-sc '{"method": "mtp", "num_speculative_tokens": 2}' --kv-transfer-config '{"kv_connector": "X"}'"""
    )
    assert found.arguments == {
        "data_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "decode_context_parallel_size": 2,
        "enable_expert_parallel": True,
        "enable_prefix_caching": False,
        "disable_hybrid_kv_cache_manager": False,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
        "kv_transfer_config": '{"kv_connector": "X"}',
    }


def test_dotted_keys_make_one_object() -> None:
    found = read(
        "vllm serve m/m --kv-transfer-config.kv_connector NixlConnector --kv_transfer_config.kv_role=kv_both "
        "--kv-transfer-config.kv_connector_extra_config.port 5 -sc.method ngram -sc.num_speculative_tokens 2 "
        "--attention_config.use_fp4_indexer_cache=True"
    )
    assert found.model == "m/m"
    assert found.arguments == {
        "kv_transfer_config": {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"port": 5},
        },
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 2},
        "attention_config": {"use_fp4_indexer_cache": "True"},
    }


def test_the_environment_before_the_command_is_read() -> None:
    found = read("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 HF_TOKEN=x vllm serve m/m")
    assert found.env == {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "HF_TOKEN": "x"}
    assert found.model == "m/m"
    contained = read("docker run -e VLLM_PP_LAYER_PARTITION=3,5 --env HF_TOKEN=x vllm/vllm-openai:latest m/m")
    assert contained.env == {"VLLM_PP_LAYER_PARTITION": "3,5", "HF_TOKEN": "x"}


def test_what_does_not_shape_the_cache_is_named_and_left_aside() -> None:
    found = read("vllm serve m/m --port 8000 --served-model-name a b --api-key secret -tp 2 --enforce-eager")
    assert found.ignored == ("--port", "--served-model-name", "--api-key", "--enforce-eager")
    assert found.arguments == {"tensor_parallel_size": 2}
    assert "secret" not in repr(found)


def test_nothing_reads_as_nothing() -> None:
    assert read("") == PastedLine()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("vllm serve m/m -tp four", "--tensor-parallel-size"),
        ("vllm serve m/m -tp 0", "--tensor-parallel-size"),
        ("vllm serve m/m --block-size", "--block-size"),
        ("vllm serve m/m --max-model-len auto", "--max-model-len"),
        ("vllm serve m/m -sc nonsense", "--speculative-config"),
        ("vllm serve m/m --tensor-parallel-size.x 2", "--tensor-parallel-size.x"),
        ("vllm serve m/m --kv-transfer-config.kv_role", "--kv-transfer-config.kv_role needs a value"),
        ("vllm serve m/m -sc.method mtp -sc.method.x 2", "--speculative-config.method.x"),
        ("""vllm serve m/m --kv-transfer-config '{}' --kv-transfer-config.kv_role x""", "whole object too"),
        ("vllm serve m/m -tp2", "write it as -tp 2"),
        ("vllm serve m/m n/n", "several models"),
        ("docker run --gpus all other/image --model m/m", "names no image of vLLM"),
    ],
)
def test_bad_values_are_named(line: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        read(line)
