"""From a config and flags to what each rank's engine core is told: layer names and their KV specs.

specs = load("models/Qwen3-8B", EngineFlags(tensor_parallel_size=2))
specs.stages[0]["model.layers.0.self_attn.attn"].page_bytes
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from decodebench.kv.specs import LayerSpec
from decodebench.models import blocks, context_length, dtypes
from decodebench.models.base import Context, Family, Layer
from decodebench.models.config_file import ModelConfig, read
from decodebench.models.engine import NEWEST_VERSION, EngineFlags
from decodebench.models.errors import ModelError, UnknownModelError
from decodebench.models.pipeline import stage_of_layers
from decodebench.models.registry import find_family

RULES_READ_IN = (0, 32)  # the version whose sources were read; 0.33's differences are coded where they apply
DEFAULT_LAYOUT = "LBNHC"
MOST_LAYERS = 1000
"""More decoder or MTP layers are taken for a broken config: the deepest published models have fewer than 200."""
LAYER_COUNTS = ("num_hidden_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpecs:
    """A model's caches under given flags.

    `stages` holds one mapping per pipeline stage; every tensor-parallel rank of a stage has the same one, and every
    data-parallel rank a full set of its own. `replicated` says that all caches are whole copies on every
    tensor-parallel rank (MLA), so adding ranks adds no room. `assumed` lists what was neither given nor read.
    """

    family: str
    architecture: str | None
    stages: tuple[Mapping[str, LayerSpec], ...]
    block_size: int
    max_model_len: int
    kv_cache_dtype: str
    layout: str
    has_state: bool
    uses_mla: bool
    attention_chunk_size: int | None
    assumed: tuple[str, ...]

    @property
    def replicated(self) -> bool:
        return self.uses_mla and not self.has_state

    @property
    def layers(self) -> dict[str, LayerSpec]:
        """All stages together."""
        return {name: spec for stage in self.stages for name, spec in stage.items()}


def load(path: str | Path, engine: EngineFlags) -> ModelSpecs:
    """The specs of the model in a directory or config.json."""
    return describe(read(path), engine)


def describe(config: ModelConfig, engine: EngineFlags) -> ModelSpecs:
    """The specs of a parsed config."""
    family = find_family(config)
    _check_version(family, config, engine)
    config = config.with_defaults(family.defaults)
    _check_depth(config)
    context = Context(
        config=config, engine=engine, dtypes=_dtypes(config, engine), state_mode=family.state_mode(engine)
    )
    layers = family.layers(context)
    if engine.draft_layers:
        layers += family.draft_layers(context)
    blocks.check_asked_backend(layers, context)
    length = context_length.max_model_len(config, engine)
    settled = blocks.settle(layers, context, length)
    return ModelSpecs(
        family=family.name,
        architecture=config.architecture,
        stages=_stages(family, layers, settled, context),
        block_size=settled.attention,
        max_model_len=length,
        kv_cache_dtype=context.dtypes.kv_flag,
        layout=_layout(layers, context),
        has_state=any(layer.kernel == "state" for layer in layers),
        uses_mla=any(layer.kernel in ("mla", "sparse_mla", "v4_mla") for layer in layers),
        attention_chunk_size=config.optional_integer("attention_chunk_size"),
        assumed=_assumed(config, engine),
    )


def _check_depth(config: ModelConfig) -> None:
    for key in LAYER_COUNTS:
        count = config.get(key)
        if isinstance(count, int) and count > MOST_LAYERS:
            raise config.wrong(key, count, f"at most {MOST_LAYERS:,} layers")


def _check_version(family: Family, config: ModelConfig, engine: EngineFlags) -> None:
    if family.last_version is not None and engine.vllm_version > family.last_version:
        last = _dotted(family.last_version)
        raise UnknownModelError(
            f"{config.source}: vLLM removed {family.name} after {last}; give --vllm-version {last} or older"
        )
    if engine.pipeline_parallel_size > 1 and not family.pipeline_parallel:
        raise ModelError(
            f"--pipeline-parallel-size {engine.pipeline_parallel_size}: vLLM's {family.name} does not support "
            "pipeline parallelism; use 1"
        )


def _dtypes(config: ModelConfig, engine: EngineFlags) -> dtypes.ModelDtypes:
    """The model's dtypes, with the KV dtypes that vLLM replaces for one model type on one platform."""
    resolved = dtypes.resolve(config, engine)
    flag = resolved.kv_flag
    if config.model_type == "glm_moe_dsa" and flag == "auto" and engine.gpu.major == 10:
        flag = "fp8_e4m3"  # `models/config.py GlmMoeDsaForCausalLM`
    elif config.model_type == "deepseek_v32" and flag == "bfloat16":
        flag = "auto"  # `models/config.py DeepseekV32ForCausalLM`
    return dtypes.ModelDtypes(
        model=resolved.model, kv_flag=flag, mamba_cache=resolved.mamba_cache, mamba_ssm=resolved.mamba_ssm
    )


def _stages(
    family: Family, layers: list[Layer], settled: blocks.Blocks, context: Context
) -> tuple[dict[str, LayerSpec], ...]:
    count = family.num_layers(context.config)
    stage_of = stage_of_layers(count, context.engine)
    stages: list[dict[str, LayerSpec]] = [{} for _ in range(context.engine.pipeline_parallel_size)]
    for layer in layers:
        stage = stage_of[layer.index] if layer.index < count else -1
        stages[stage][layer.name] = blocks.build(layer, settled, context)
    return tuple(stages)


def _layout(layers: list[Layer], context: Context) -> str:
    """The layout that every backend reads, most preferred first (`v1/attention/backends/utils.py`)."""
    choices = [backend.layouts for backend in blocks.backends_of(layers, context) if backend.layouts]
    if not choices:
        return DEFAULT_LAYOUT
    common = [layout for layout in choices[0] if all(layout in others for others in choices)]
    assert common, f"backends without a common layout: {choices}"
    return common[0]


def _assumed(config: ModelConfig, engine: EngineFlags) -> tuple[str, ...]:
    assumed = []
    if engine.vllm_version < RULES_READ_IN:
        assumed.append(
            f"layer rules of vLLM {_dotted(RULES_READ_IN)}: those of {_dotted(engine.vllm_version)} were not read"
        )
    elif engine.vllm_version > NEWEST_VERSION:
        assumed.append(f"layer rules of vLLM {_dotted(NEWEST_VERSION)}, the newest known")
    if engine.dtype == "auto" and not any(
        config.outer.get(k) or config.text.get(k) for k in ("dtype", "torch_dtype")
    ):
        assumed.append("dtype bfloat16: the config names none")
    return tuple(assumed)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
