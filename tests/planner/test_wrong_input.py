"""Wrong input of a plan is one error that names it."""

from typing import Any

import pytest

from decodebench import plan
from decodebench.errors import UserError
from decodebench.hma import Verdict

from .configs import llama

TARGET: dict[str, Any] = {"gpu": "h200", "vllm_version": "0.31"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"available_kv_memory": "lots"}, "--available-kv-memory"),
        ({"available_kv_memory": "40"}, r"40 bytes\?\n.*write 40GiB"),
        ({"available_kv_memory": 0}, "--available-kv-memory"),
        ({"batch_size": [0]}, "--batch-size"),
        ({"batch_size": "3x"}, "--batch-size"),
        ({"context_len": [-1]}, "--context-len"),
        ({"output_len": -1}, "--output-len"),
        ({"output_len": "many"}, "--output-len"),
        ({"gpu": "abacus"}, "abacus"),
        ({"vllm_version": "yesterday"}, "yesterday"),
        ({"vllm_version": "0.3"}, "0.3"),
        ({"tensor_parallel_size": 0}, "tensor-parallel-size"),
        ({"pipeline_parallel_size": 9}, "pipeline-parallel-size"),
        ({"kv_cache_dtype": "int3"}, "int3"),
        ({"dtype": "bf8"}, "bf8"),
        ({"max_model_len": 10**9}, "max-model-len"),
        ({"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}}, "eagle3"),
        ({"speculative_config": {"method": "mtp"}}, "num_speculative_tokens"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 63}, "63 is less than --max-num-seqs"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}, "--no-enable-chunked-prefill"),
        ({"mamba_cache_mode": "some"}, "--mamba-cache-mode some"),
        ({"gdn_prefill_backend": "cutedsl"}, "--gdn-prefill-backend cutedsl"),
        ({"attention_config": ["FLASHINFER"]}, "--attention-config"),
        ({"attention_config": {"backend": "ABACUS"}}, "ABACUS"),
        ({"attention_config": {"indexer_kv_dtype": "int1"}}, "int1"),
        ({"available_kv_memory": 1.5}, "--available-kv-memory"),
        ({"batch_size": 1.5}, "--batch-size"),
        ({"tensor_parallel_size": "two"}, "--tensor-parallel-size"),
        ({"tensor_parallel_size": 2.0}, "--tensor-parallel-size"),
        ({"enable_prefix_caching": "yes"}, "--enable-prefix-caching"),
        ({"tensor_paralel_size": 2}, "tensor_paralel_size"),
    ],
)
def test_wrong_input_is_one_error_that_names_it(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        plan(llama(), **{**TARGET, **wrong})


@pytest.mark.parametrize(
    ("wrong", "accepted"),
    [
        ({"gpu": "h300"}, "choose from .*h200"),
        ({"vllm_version": "0.10"}, r"write 0\.18 to 0\.33"),
        ({"vllm_version": "yesterday"}, r"write 0\.18 to 0\.33"),
        ({"tensor_parallel_size": "0"}, "write a whole number above 0"),
    ],
)
def test_the_next_step_of_a_wrong_value_is_what_is_accepted(wrong: dict[str, Any], accepted: str) -> None:
    with pytest.raises(UserError, match=accepted) as refused:
        plan(llama(), **{**TARGET, **wrong})
    assert refused.value.next_step


def test_a_malformed_transfer_config_is_a_verdict_that_names_the_path() -> None:
    broken = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": ["nixl"]},
    }
    answer = plan(llama(), kv_transfer_config=broken, **TARGET)
    assert (answer.hma.verdict, answer.hma.path) == (Verdict.ERROR, "connectors[0]")


def test_no_model_is_an_error() -> None:
    with pytest.raises(UserError, match="MODEL"):
        plan()
