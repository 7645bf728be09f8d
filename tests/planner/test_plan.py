"""The plan as a whole: the cases on hybrid verdicts (H1, H4, H7) and on capacity (P2 to P8)."""

from typing import Any

import pytest

from decodebench import plan
from decodebench.errors import UserError
from decodebench.hma import Verdict

from .configs import deepseek_v3, gemma3, llama, llama4, qwen3_next

TARGET: dict[str, Any] = {"gpu": "h200", "vllm_version": "0.31"}


def connector(name: str) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": "kv_both"}


# H1: what a connector without support costs


def test_a_connector_without_support_costs_what_full_attention_costs() -> None:
    asked: dict[str, Any] = {"available_kv_memory": "4GiB", "context_len": 128_000, **TARGET}
    on = plan(gemma3(), kv_transfer_config=connector("NixlConnector"), **asked)
    off = plan(gemma3(), kv_transfer_config=connector("ExampleConnector"), **asked)
    assert (on.hma.verdict, off.hma.verdict) == (Verdict.ON, Verdict.OFF)
    assert "ExampleConnector" in off.hma.reason
    cost = off.to_json()["hma"]["cost"]["requests"][0]
    page = 4 * 256 * 16 * 2  # heads x (K + V) x tokens x bytes
    assert cost["bytes_off"] == 8000 * 6 * page
    # With the manager: the full layer's blocks, and for each sliding group the window and one step not yet settled.
    assert cost["bytes_on"] == sum(off.on.requests[0].blocks) * page if off.on else 0
    assert off.on is not None
    assert off.on.requests[0].blocks[-1] == 8000
    assert all(blocks <= 10 for blocks in off.on.requests[0].blocks[:-1])
    assert cost["max_requests_off"] < cost["max_requests_on"]


def test_a_uniform_model_pays_nothing_for_having_it_off() -> None:
    answer = plan(llama(), available_kv_memory="4GiB", context_len="8k", **TARGET)
    assert answer.on is not None
    assert answer.off is not None
    assert answer.on.groups == answer.off.groups
    assert answer.on.pool == answer.off.pool


def test_an_offloading_size_is_the_connector_that_the_engine_makes_of_it() -> None:
    native = plan(gemma3(), kv_offloading_size=4, **TARGET)
    assert native.hma.verdict is Verdict.ON
    assert "OffloadingConnector" in native.hma.reason
    lmcache = plan(gemma3(), kv_offloading_size=4, kv_offloading_backend="lmcache", **TARGET)
    assert lmcache.hma.verdict is Verdict.OFF
    with pytest.raises(UserError, match="--kv-offloading-backend"):
        plan(gemma3(), kv_offloading_size=4, kv_offloading_backend="tape", **TARGET)


# H4: a model that needs the manager


@pytest.mark.parametrize("asked_off", [None, True, False])
def test_state_layers_are_impossible_with_a_connector_without_support(asked_off: bool | None) -> None:
    answer = plan(
        qwen3_next(),
        available_kv_memory="4GiB",
        kv_transfer_config=connector("ExampleConnector"),
        disable_hybrid_kv_cache_manager=asked_off,
        **TARGET,
    )
    assert answer.hma.verdict is Verdict.IMPOSSIBLE
    assert answer.in_force is None
    assert answer.off is None
    assert answer.to_json()["hma_off"] == {"error": answer.off_error}


# H7: chunked local attention


def test_chunked_local_attention_is_planned_off_unless_the_environment_allows_it() -> None:
    answer = plan(llama4(), available_kv_memory="4GiB", **TARGET)
    assert answer.hma.verdict is Verdict.OFF
    assert answer.in_force is answer.off
    allowed = {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1"}
    assert plan(llama4(), available_kv_memory="4GiB", env=allowed, **TARGET).hma.verdict is Verdict.ON


# P2: fixed and marginal bytes


def test_fixed_and_marginal_bytes_are_told_apart() -> None:
    answer = plan(qwen3_next(), available_kv_memory="10GiB", context_len="8k,128k", **TARGET)
    assert answer.on is not None
    short, long = answer.on.requests
    assert short.fixed_bytes == long.fixed_bytes > 0
    grown = (long.bytes - short.bytes) / (128_000 - 8_000)
    assert grown == pytest.approx(short.bytes_per_token, rel=0.02)


# P3: a pool pinned by state


def test_a_request_that_is_mostly_state_is_warned_about() -> None:
    answer = plan(qwen3_next(), available_kv_memory="4GiB", context_len=12, **TARGET)
    assert any("does not depend on its" in text for text in answer.warnings)
    assert not plan(llama(), available_kv_memory="4GiB", context_len=12, **TARGET).warnings


# P5: the largest legal max_num_seqs


def test_state_groups_bound_max_num_seqs_by_the_blocks() -> None:
    answer = plan(qwen3_next(), num_gpu_blocks_override=161, max_num_seqs=256, max_model_len=8192, **TARGET)
    assert answer.to_json()["max_num_seqs"] == 161
    assert any("at most 161" in text for text in answer.warnings)
    assert plan(llama(), num_gpu_blocks_override=161, **TARGET).to_json()["max_num_seqs"] is None


# P6: the null block


def test_a_pool_of_exactly_the_blocks_a_request_needs_does_not_fit() -> None:
    asked: dict[str, Any] = {"context_len": 128, "batch_size": 1, "max_model_len": 128, **TARGET}
    (exact,) = plan(llama(), num_gpu_blocks_override=8, **asked).to_json()["points"]
    assert (exact["fits"], exact["reason"]) == (False, "needs 8 of 7 blocks")
    (one_more,) = plan(llama(), num_gpu_blocks_override=9, **asked).to_json()["points"]
    assert one_more["fits"]


# P7: MLA under tensor and data parallelism


def test_mla_is_replicated_under_tensor_parallelism_and_adds_up_under_data_parallelism() -> None:
    pools = {}
    for ranks in (1, 2, 8):
        answer = plan(deepseek_v3(), available_kv_memory="4GiB", tensor_parallel_size=ranks, **TARGET)
        assert answer.on is not None
        pools[ranks] = answer.on.pool.num_blocks
        assert any("hold the same KV" in text for text in answer.warnings) is (ranks > 1)
    assert len(set(pools.values())) == 1
    beside = plan(deepseek_v3(), available_kv_memory="4GiB", data_parallel_size=8, **TARGET)
    assert beside.on is not None
    assert beside.on.pool.num_blocks == pools[1]
    assert not beside.warnings


# P8: families and layer types that are not known


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="MysteryForCausalLM"):
        plan({**llama(), "architectures": ["MysteryForCausalLM"]}, **TARGET)


def test_an_unknown_layer_type_is_refused_by_name() -> None:
    config = gemma3()
    config["layer_types"][2] = "telepathic_attention"
    with pytest.raises(UserError, match="telepathic_attention"):
        plan(config, **TARGET)


# points


def test_a_point_beyond_a_limit_of_the_step_names_the_limit() -> None:
    answer = plan(
        llama(),
        available_kv_memory="400GiB",
        batch_size=[4, 64],
        context_len="8k,200k",
        max_num_seqs=32,
        max_model_len=100_000,
        **TARGET,
    )
    reasons = (
        {(point.batch_size, point.context_len): point.reason for point in answer.on.points}
        if answer.on
        else {}
    )
    assert answer.on is not None
    assert [point.fits for point in answer.on.points] == [True, False, False, False]
    assert "--max-num-seqs is 32" in reasons[64, 8000]
    assert "--max-model-len 100,000" in reasons[4, 200_000]
    assert reasons[4, 8000] == "needs 2,000 of 1,638,399 blocks"
    assert any("200,000" in text for text in answer.warnings)


def test_the_steps_default_tokens_are_capped_by_what_the_requests_can_bring() -> None:
    answer = plan(llama(), max_num_seqs=4, max_model_len=1000, **TARGET)
    assert answer.settings.workload.max_num_batched_tokens == 4000


def test_mla_on_a_cpu_without_amx_is_prefilled_in_one_step() -> None:
    target = {**TARGET, "gpu": "cpu"}
    answer = plan(deepseek_v3(), max_model_len=10_000, max_num_batched_tokens=512, **target)
    assert answer.settings.workload.max_num_batched_tokens == 10_000
    assert plan(deepseek_v3(), max_model_len=1000, **target).settings.workload.max_num_batched_tokens == 2048


def test_decoded_tokens_need_blocks_too() -> None:
    asked: dict[str, Any] = {"available_kv_memory": "1GiB", "batch_size": 1, "context_len": 16, **TARGET}
    needed = [
        plan(llama(), output_len=tokens, **asked).to_json()["points"][0]["needed_blocks"]
        for tokens in (0, 1, 16)
    ]
    assert needed == [1, 2, 2]


def test_without_memory_there_are_groups_and_costs_but_no_pool() -> None:
    document = plan(gemma3(), batch_size=4, context_len="8k", **TARGET).to_json()
    assert document["pool"]["blocks"] is None
    assert document["log_line"] == {"tokens": None, "concurrency": None, "lines": []}
    assert document["requests"][0]["blocks"] > 0
    assert document["points"] == []


def test_an_engine_that_does_not_start_is_warned_about_with_the_length_that_would() -> None:
    answer = plan(llama(), num_gpu_blocks_override=100, **TARGET)
    (warning,) = answer.warnings
    assert "does not start" in warning
    assert "1,584" in warning  # 99 blocks of 16 tokens beside the null block


def test_speculation_with_the_models_own_layers_is_taken_into_account() -> None:
    plain = plan(deepseek_v3(), available_kv_memory="4GiB", context_len="8k", **TARGET)
    config = {**deepseek_v3(), "num_nextn_predict_layers": 1}
    drafted = plan(
        config,
        available_kv_memory="4GiB",
        context_len="8k",
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
        **TARGET,
    )
    assert plain.on is not None
    assert drafted.on is not None
    assert drafted.on.groups[0].layers == plain.on.groups[0].layers + 1


def test_text_of_a_library_call_is_read_as_on_the_command_line() -> None:
    text = plan(llama(), max_model_len="8K", tensor_parallel_size="2", **TARGET)
    assert text.settings == plan(llama(), max_model_len=8192, tensor_parallel_size=2, **TARGET).settings


def test_without_chunked_prefill_a_step_takes_the_longest_prompt() -> None:
    document = plan(llama(), enable_chunked_prefill=False, **TARGET).to_json()
    assert document["engine"]["max_num_batched_tokens"] == 131072


def test_options_that_are_not_read_but_may_change_the_answer_are_warned_about() -> None:
    line = ["vllm", "serve", "--hf-overrides", '{"num_hidden_layers": 2}', "--port", "8000"]
    warned = [text for text in plan(llama(), pasted=line, **TARGET).warnings if "--" in text]
    assert warned == ["--hf-overrides is not read here and may change the config"]
