"""Run in a process of its own: build real vLLM models without weights and print their KV specs as JSON.

    python engine_specs.py '{"name": {config.json}, ...}'

The models are constructed on torch's meta device by the installed engine (its CPU platform), so nothing is allocated.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import set_current_vllm_config
from vllm.distributed import destroy_model_parallel, init_distributed_environment, initialize_model_parallel
from vllm.distributed.utils import get_pp_indices
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheSpec, MambaSpec
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

OPTIONAL = ("sliding_window", "attention_chunk_size", "cache_dtype_str", "alignment", "is_index_group_leader")


def facts(spec: KVCacheSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"block_size": spec.block_size, "page": spec.page_size_bytes}
    if isinstance(spec, MambaSpec):
        return found | {
            "shapes": [list(shape) for shape in spec.shapes],
            "dtypes": [str(dtype).removeprefix("torch.") for dtype in spec.dtypes],
            "type": spec.mamba_type.name.lower(),
            "mode": spec.mamba_cache_mode,
            "blocks": [spec.num_speculative_blocks, spec.num_prefill_checkpoint_blocks],
            "checkpoints_at": spec.prefill_checkpoint_alignment,
        }
    assert isinstance(spec, AttentionSpec)
    found |= {name: getattr(spec, name) for name in OPTIONAL if hasattr(spec, name)}
    return found | {
        "heads": [spec.num_kv_heads, spec.head_size, spec.head_size_v],
        "dtype": str(spec.dtype).removeprefix("torch."),
        "quant": spec.kv_quant_mode.name.lower(),
        "stride": spec.get_block_stride_alignment(),
        "tokens_per_state": int(spec.tokens_per_state),
        "content": spec.state_content_bytes,
        "tp_shards": spec.max_tp_shards,
    }


def layers_of(config: dict[str, Any], directory: str) -> list[tuple[str, dict[str, Any]]]:
    """The layers of the model whose config.json is written to `directory`, in registration order."""
    Path(directory, "config.json").write_text(json.dumps(config))
    drafting = config.get("num_nextn_predict_layers", 0) > 0
    built = EngineArgs(
        model=directory,
        skip_tokenizer_init=True,
        load_format="dummy",
        max_model_len=4096,
        max_num_batched_tokens=4096,
        enforce_eager=True,
        speculative_config={"method": "mtp", "num_speculative_tokens": 1} if drafting else None,
    ).create_engine_config()
    with set_current_vllm_config(built):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        destroy_model_parallel()
        initialize_model_parallel(1, 1)
        with torch.device("meta"):
            initialize_model(vllm_config=built, model_config=built.model_config)
            if built.speculative_config is not None:
                draft = built.speculative_config.draft_model_config
                initialize_model(vllm_config=built, model_config=draft)
        current_platform.update_block_size_for_backend(built)
        return [(name, facts(spec)) for name, spec in get_kv_cache_spec(built).items()]


def cpu() -> str:
    """Our name for the kind of CPU that the engine sees."""
    if torch.cpu._is_amx_tile_supported():
        return "cpu-amx"
    return "cpu" if torch.cpu._is_avx512_bf16_supported() else "cpu-avx2"


def main() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    printed: dict[str, Any] = {}
    for name, config in json.loads(sys.argv[1]).items():
        with tempfile.TemporaryDirectory() as directory:
            try:
                printed[name] = layers_of(config, directory)
            except Exception as error:
                printed[name] = f"{type(error).__name__}: {error}"
    partitions = {
        f"{n}/{pp}": [get_pp_indices(n, rank, pp) for rank in range(pp)]
        for n in range(8, 64)
        for pp in (2, 3, 4)
    }
    told = {"version": vllm.__version__, "cpu": cpu(), "layers": printed, "partitions": partitions}
    print("SPECS", json.dumps(told))


main()
