"""What flags change: KV dtypes, block sizes, prefix caching, speculation, the drafter's layers, the device."""

import pytest

from decodebench.kv.specs import (
    MLA,
    AttentionSpec,
    LayerSpec,
    MambaState,
    MultipleOf,
    SlidingWindow,
    SlidingWindowMLA,
)
from decodebench.models import ConfigError, ModelError, ModelSpecs, find_gpu
from tests.models.configs import (
    DEEPSEEK,
    DEEPSEEK_SPARSE,
    DEEPSEEK_V4,
    LLAMA,
    NEMOTRON_H,
    QWEN3_NEXT,
    specs_of,
)


def only(specs: ModelSpecs, kind: str) -> LayerSpec:
    found = {spec for spec in specs.layers.values() if spec.kind == kind}
    assert len(found) == 1, found
    return found.pop()


def pages(specs: ModelSpecs) -> set[tuple[int, int]]:
    return {(spec.block_size, spec.page_bytes) for spec in specs.layers.values()}


class TestKvDtype:
    @pytest.mark.parametrize(
        ("flag", "dtype", "page"),
        [
            ("auto", "bfloat16", 16384),
            ("float16", "float16", 16384),
            ("fp8", "uint8", 8192),
            ("fp8_e4m3", "uint8", 8192),
        ],
    )
    def test_decides_dtype_and_page(self, flag: str, dtype: str, page: int) -> None:
        spec = only(specs_of(LLAMA, kv_cache_dtype=flag), "full_attention")
        assert isinstance(spec, AttentionSpec)
        assert (spec.dtype, spec.page_bytes) == (dtype, page)

    @pytest.mark.parametrize("flag", ["int8_per_token_head", "turboquant_k8v4", "nvfp4", "fp4"])
    def test_of_unknown_layout_is_refused(self, flag: str) -> None:
        with pytest.raises(
            ModelError, match=f"--kv-cache-dtype {flag}: its page layout is not known.*accepted: auto"
        ):
            specs_of(LLAMA, kv_cache_dtype=flag)

    def test_no_backend_of_the_device_takes_is_refused_with_those_it_takes(self) -> None:
        with pytest.raises(
            ModelError, match="--kv-cache-dtype fp8_ds_mla: no attention backend for dense layers"
        ):
            specs_of(LLAMA, kv_cache_dtype="fp8_ds_mla")

    @pytest.mark.parametrize(
        ("quantization", "flag"),
        [
            (
                {
                    "quant_method": "modelopt",
                    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
                },
                "fp8_e4m3",
            ),
            ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
            ({"quant_method": "modelopt", "quant_algo": "FP8"}, "auto"),
            ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, "fp8"),
            ({"quant_method": "fp8"}, "auto"),
        ],
    )
    def test_left_at_auto_follows_the_checkpoint(self, quantization: dict[str, object], flag: str) -> None:
        assert specs_of({**LLAMA, "quantization_config": quantization}).kv_cache_dtype == flag
        given = specs_of({**LLAMA, "quantization_config": quantization}, kv_cache_dtype="bfloat16")
        assert given.kv_cache_dtype == "bfloat16"

    def test_fp8_mla_on_hopper_moves_to_flashmla_and_its_blocks(self) -> None:
        assert pages(specs_of(DEEPSEEK)) == {(16, 16 * 1152)}
        assert pages(specs_of(DEEPSEEK, kv_cache_dtype="fp8")) == {(64, 64 * 576)}

    def test_sparse_fp8_rows_are_packed_656_bytes_where_flashmla_serves_them(self) -> None:
        specs = specs_of(DEEPSEEK_SPARSE, kv_cache_dtype="fp8")
        assert pages(specs) == {(64, 64 * 656), (64, 64 * 132)}
        assert pages(specs_of(DEEPSEEK_SPARSE, kv_cache_dtype="fp8", gpu=find_gpu("b200"))) == {
            (64, 64 * 576),
            (64, 64 * 132),
        }

    def test_bfloat16_is_auto_for_v32_and_auto_is_fp8_for_glm5_on_blackwell(self) -> None:
        assert specs_of(DEEPSEEK_SPARSE, kv_cache_dtype="bfloat16").kv_cache_dtype == "auto"
        glm = {**DEEPSEEK_SPARSE, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}
        assert specs_of(glm).kv_cache_dtype == "auto"
        assert specs_of(glm, gpu=find_gpu("b200")).kv_cache_dtype == "fp8_e4m3"


class TestDeepSeekV4:
    def test_plain_rows_of_the_flashinfer_backend_are_aligned_to_512_bytes(self) -> None:
        specs = specs_of(DEEPSEEK_V4, attention_backend="flashinfer_mla_sparse_dsv4")
        rows = {
            spec.page_bytes
            for spec in specs.layers.values()
            if isinstance(spec, MLA) and spec.head_size == 512
        }
        assert rows == {64 * 1024, 2 * 1024}

    def test_mxfp4_index_rows_are_68_bytes(self) -> None:
        specs = specs_of(DEEPSEEK_V4, indexer_kv_dtype="mxfp4")
        assert {spec.head_size for spec in specs.layers.values() if isinstance(spec, MLA)} == {512, 68}

    def test_bf16_is_refused_where_rows_are_packed(self) -> None:
        with pytest.raises(ModelError, match="bfloat16"):
            specs_of(DEEPSEEK_V4, kv_cache_dtype="bfloat16", attention_backend="flashmla_sparse_dsv4")

    def test_an_mtp_layer_adds_one_sliding_window_cache(self) -> None:
        plain, drafting = specs_of(DEEPSEEK_V4), specs_of(DEEPSEEK_V4, draft_layers=True)
        added = [drafting.layers[name] for name in drafting.layers.keys() - plain.layers.keys()]
        assert [type(spec) for spec in added] == [SlidingWindowMLA]


class TestBlockSize:
    def test_given_by_the_user_is_kept_where_the_backend_takes_it(self) -> None:
        assert specs_of(LLAMA, block_size=48).block_size == 48
        with pytest.raises(
            ModelError, match="--block-size 24: FLASH_ATTN takes blocks of any multiple of 16 tokens"
        ):
            specs_of(LLAMA, block_size=24)

    @pytest.mark.parametrize(
        ("gpu", "dense", "latent"),
        [("h200", 16, 16), ("a100", 16, 16), ("b200", 16, 32), ("rtx-pro-6000", 16, 16), ("cpu", 128, 16)],
    )
    def test_default_is_the_devices(self, gpu: str, dense: int, latent: int) -> None:
        assert specs_of(LLAMA, gpu=find_gpu(gpu)).block_size == dense
        assert specs_of(DEEPSEEK, gpu=find_gpu(gpu)).block_size == latent

    def test_that_the_platform_forces_overrides_the_users(self) -> None:
        assert specs_of(DEEPSEEK, gpu=find_gpu("cpu"), block_size=64).block_size == 16
        assert specs_of(LLAMA, gpu=find_gpu("cpu"), block_size=64).block_size == 64

    def test_follows_the_backend_asked_for(self) -> None:
        assert specs_of(DEEPSEEK, attention_backend="flashmla").block_size == 64
        with pytest.raises(
            ModelError, match=r"--attention-backend XFORMERS: not known .*accepted: .*FLASH_ATTN"
        ):
            specs_of(LLAMA, attention_backend="XFORMERS")

    def test_of_a_window_is_the_largest_kernel_block_that_fits(self) -> None:
        """FlashInfer on SM100 has exact kernel blocks: up to 64 tokens, or 1,024 with grouped queries."""
        config = {**LLAMA, "layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 512}
        for kv_heads, window_block, largest in ((16, 64, 64), (4, 128, 1024)):
            specs = specs_of(
                {**config, "num_key_value_heads": kv_heads}, gpu=find_gpu("b200"), block_size=128
            )
            assert {(spec.kind, spec.block_size) for spec in specs.layers.values()} == {
                ("sliding_window", window_block),
                ("full_attention", 128),
            }
            assert {spec.block_stride_alignment for spec in specs.layers.values()} == {MultipleOf(largest)}

    def test_of_a_hybrid_holds_a_whole_state_page(self) -> None:
        for tp in (1, 2):
            for flag in ("auto", "fp8"):
                specs = specs_of(QWEN3_NEXT, tensor_parallel_size=tp, kv_cache_dtype=flag)
                attention, state = only(specs, "full_attention"), only(specs, "mamba")
                assert attention.page_bytes == state.page_bytes >= state.page_bytes_unpadded
                assert attention.block_size % 64 == 0

    @pytest.mark.parametrize(
        ("version", "prefill", "block", "checkpoints"),
        [((0, 33), "auto", 576, 1), ((0, 33), "triton", 544, 0), ((0, 32), "auto", 544, 0)],
    )
    def test_of_gdn_follows_the_prefill_kernels_checkpoints(
        self, version: tuple[int, int], prefill: str, block: int, checkpoints: int
    ) -> None:
        specs = specs_of(QWEN3_NEXT, vllm_version=version, gdn_prefill_backend=prefill)
        state = only(specs, "mamba")
        assert isinstance(state, MambaState)
        assert (specs.block_size, state.num_prefill_checkpoint_blocks) == (block, checkpoints)


class TestState:
    @pytest.mark.parametrize(
        ("version", "mode", "block", "checkpoints"),
        [((0, 33), "align", 544, 1), ((0, 31), "align", 544, 0), ((0, 27), "all", 640, 0)],
    )
    def test_mode_and_checkpoints_of_mamba2_follow_the_version(
        self, version: tuple[int, int], mode: str, block: int, checkpoints: int
    ) -> None:
        """548,864 B of state and 1,024 B a token; in mode `all` blocks are whole chunks of 128 tokens."""
        specs = specs_of({**NEMOTRON_H, "mamba_ssm_cache_dtype": "bfloat16"}, vllm_version=version)
        state = only(specs, "mamba")
        assert isinstance(state, MambaState)
        assert (state.cache_mode, state.block_size, state.num_prefill_checkpoint_blocks) == (
            mode,
            block,
            checkpoints,
        )
        assert specs.block_size == block

    def test_mode_all_can_be_asked_for_until_0_31(self) -> None:
        for version, mode in (((0, 31), "all"), ((0, 32), "align")):
            state = only(specs_of(NEMOTRON_H, vllm_version=version, mamba_cache_mode="all"), "mamba")
            assert isinstance(state, MambaState)
            assert state.cache_mode == mode
        with pytest.raises(ModelError, match="--mamba-cache-mode some: accepted: none, align, all"):
            specs_of(NEMOTRON_H, mamba_cache_mode="some")

    def test_without_prefix_caching_is_one_block_for_the_whole_context(self) -> None:
        specs = specs_of(QWEN3_NEXT, enable_prefix_caching=False, max_model_len=4096)
        state = only(specs, "mamba")
        assert isinstance(state, MambaState)
        assert (state.cache_mode, state.block_size) == ("none", 4096)
        assert specs.block_size == 544  # no checkpoints to align to

    def test_grows_by_one_convolution_row_and_one_block_for_each_draft_token(self) -> None:
        state = only(specs_of(QWEN3_NEXT, num_speculative_tokens=2), "mamba")
        assert isinstance(state, MambaState)
        assert state.shapes[0] == (5, 8192)
        assert state.num_speculative_blocks == 2

    def test_dtype_flags_are_heard(self) -> None:
        state = only(specs_of(QWEN3_NEXT, mamba_ssm_cache_dtype="float32"), "mamba")
        assert isinstance(state, MambaState)
        assert state.dtypes == ("bfloat16", "float32")
        with pytest.raises(ModelError, match="--mamba-ssm-cache-dtype int8"):
            specs_of(QWEN3_NEXT, mamba_ssm_cache_dtype="int8")


class TestWindow:
    def test_without_layer_types_reaches_every_layer(self) -> None:
        specs = specs_of({**LLAMA, "sliding_window": 256})
        assert {spec.sliding_window for spec in specs.layers.values() if isinstance(spec, SlidingWindow)} == {
            256
        }
        assert len(specs.layers) == 8

    def test_of_a_mistral_config_without_the_key_is_the_config_classs(self) -> None:
        config = {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral"}
        assert {spec.kind for spec in specs_of(config).layers.values()} == {"sliding_window"}
        assert {spec.kind for spec in specs_of({**config, "sliding_window": None}).layers.values()} == {
            "full_attention"
        }

    @pytest.mark.parametrize("flags", [{"disable_sliding_window": True}, {}])
    def test_of_zero_or_switched_off_is_none(self, flags: dict[str, bool]) -> None:
        config = {**LLAMA, "sliding_window": 256 if flags else 0}
        assert {spec.kind for spec in specs_of(config, **flags).layers.values()} == {"full_attention"}


class TestDraft:
    @pytest.mark.parametrize(
        ("config", "added"),
        [
            (DEEPSEEK, 1),
            (DEEPSEEK_SPARSE, 2),
            (QWEN3_NEXT, 1),
            ({key: value for key, value in QWEN3_NEXT.items() if key != "num_nextn_predict_layers"}, 1),
            ({**NEMOTRON_H, "num_nextn_predict_layers": 1}, 1),
        ],
    )
    def test_mtp_layers_are_those_of_the_model(self, config: dict[str, object], added: int) -> None:
        plain, drafting = specs_of(config), specs_of(config, draft_layers=True)
        assert len(drafting.layers) == len(plain.layers) + added
        assert set(drafting.layers.values()) == set(plain.layers.values())


class TestGpu:
    @pytest.mark.parametrize("name", ["H200", "NVIDIA H200", "nvidia_h200"])
    def test_names_are_found_in_any_spelling(self, name: str) -> None:
        assert find_gpu(name).name == "h200"

    def test_an_unknown_name_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(ModelError, match=r"--gpu 'tpu-v6' is not known; accepted: .*h200.*cpu"):
            find_gpu("tpu-v6")

    def test_sparse_attention_is_refused_where_no_backend_runs_it(self) -> None:
        with pytest.raises(ModelError, match=r"--gpu a100: no attention backend .* runs sparse_mla layers"):
            specs_of(DEEPSEEK_SPARSE, gpu=find_gpu("a100"))


def test_what_was_not_given_is_said() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    assert specs_of(LLAMA).assumed == ()
    assert specs_of(config).assumed == ("dtype bfloat16: the config names none",)
    assert "layer rules of vLLM 0.32" in specs_of(LLAMA, vllm_version=(0, 24)).assumed[0]


def test_a_dtype_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="torch_dtype"):
        specs_of({**LLAMA, "torch_dtype": "int4"})
    with pytest.raises(ModelError, match="--dtype int4"):
        specs_of(LLAMA, dtype="int4")
