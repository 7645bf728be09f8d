"""The block sizes of a model's layers, settled as the engine settles them once all layers are known.

First a size that every attention backend takes, then, where layers keep recurrent state, one whose attention page holds
a whole state page (`kv/alignment.py`). Read in vLLM 0.32 `platforms/interface.py _preferred_block_size_for_backends`,
`platforms/cpu.py check_and_update_config` and `v1/worker/utils.py customize_attention_spec`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm

from decodebench.kv.alignment import align_hybrid
from decodebench.kv.specs import (
    ALIGN,
    ALL,
    MLA,
    AttentionSpec,
    LayerSpec,
    MambaState,
    MultipleOf,
    SlidingWindow,
)
from decodebench.models.backends import Backend
from decodebench.models.base import Context, Layer
from decodebench.models.errors import ModelError, UnknownModelError
from decodebench.models.gpus import DEFAULT_BLOCK_SIZE

MAMBA1_CHUNK = 2048  # `ModelConfig.get_mamba_chunk_size` where the config has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """`attention`: tokens a block of the layers that leave it to the engine. `state_page`: padded bytes, or None."""

    attention: int
    state: int | None = None
    state_page: int | None = None


def backend_of(layer: Layer, context: Context) -> Backend:
    engine = context.engine
    return engine.gpu.backend(
        layer.kernel,
        context.dtypes.kv_flag,
        layer.head_size,
        layer.queries_per_kv_head,
        asked=engine.attention_backend,
    )


def backends_of(layers: Sequence[Layer], context: Context) -> list[Backend]:
    """Distinct attention backends in layer order (`_find_non_ssm_backends`)."""
    return list(dict.fromkeys(backend_of(layer, context) for layer in layers if layer.kernel != "state"))


def check_asked_backend(layers: Sequence[Layer], context: Context) -> None:
    """`--attention-backend` must run at least one kind of the model's layers on the device."""
    gpu, asked = context.engine.gpu, context.engine.attention_backend
    kernels = {layer.kernel for layer in layers if layer.kernel != "state"}
    names = {backend.name for kernel in kernels for backend in gpu.backends.get(kernel, ())}
    if asked is not None and asked.upper() not in names:
        raise ModelError(
            f"--attention-backend {asked}: not known to run this model's layers on {gpu.name}; "
            f"accepted: {', '.join(sorted(names))}"
        )


def settle(layers: Sequence[Layer], context: Context, max_model_len: int) -> Blocks:
    """The block sizes for all of `layers`, a drafter's included."""
    backends = backends_of(layers, context)
    block = _attention_block(layers, backends, context)
    states = [spec for layer in layers if isinstance(spec := layer.build(block_size=1), MambaState)]
    if not states:
        return Blocks(attention=block)
    if not backends:
        raise UnknownModelError(
            f"{context.config.source}: every layer keeps recurrent state and none attention; "
            "the block size of such a model is not known here"
        )
    tokens = [layer.build(block_size=1) for layer in layers if layer.kernel != "state"]
    state_page = max(state.page_bytes for state in states)
    hybrid = align_hybrid(
        state_bytes=state_page,
        attention_bytes_per_token=max(token.page_bytes for token in tokens),
        block_size=block,
        smallest_kernel_blocks=[min(backend.bases) for backend in backends],
        is_mla=isinstance(tokens[0], MLA),
        multiple_of=_state_interval(states, context),
        rules=context.engine.rules,
    )
    state_block = hybrid.block_size if context.state_mode in (ALIGN, ALL) else max_model_len
    padded = None if hybrid.page_bytes == state_page else hybrid.page_bytes
    return Blocks(attention=hybrid.block_size, state=state_block, state_page=padded)


def build(layer: Layer, blocks: Blocks, context: Context) -> LayerSpec:
    """The layer's spec with its block size, padding and block stride."""
    if layer.kernel == "state":
        assert blocks.state is not None, "a state layer without a state block size"
        return replace(layer.build(block_size=blocks.state), page_bytes_padded=blocks.state_page)
    backend = backend_of(layer, context)
    spec = layer.build(block_size=layer.own_block_size or blocks.attention)
    if layer.kernel == "dense" and isinstance(spec, SlidingWindow):
        spec = layer.build(block_size=backend.largest_kernel_block(blocks.attention))
    if isinstance(spec, AttentionSpec):
        spec = replace(spec, block_stride_alignment=_stride(spec, backend))
    return spec


def _attention_block(layers: Sequence[Layer], backends: Sequence[Backend], context: Context) -> int:
    """The platform's size where it forces one, else the user's, else the least that suits all backends."""
    gpu, asked = context.engine.gpu, context.engine.block_size
    forced = [
        gpu.forced_block_sizes[layer.kernel] for layer in layers if layer.kernel in gpu.forced_block_sizes
    ]
    if forced:
        return max(forced)
    if asked is not None:
        for backend in backends:
            if not backend.takes_block(asked):
                raise ModelError(
                    f"--block-size {asked}: {backend.name} takes blocks of {_sizes(backend)} tokens"
                )
        return asked
    default = gpu.default_block_size or DEFAULT_BLOCK_SIZE
    if gpu.default_block_size or all(backend.takes_block(default) for backend in backends):
        return default
    for candidate in sorted({lcm(*sizes) for sizes in product(*(backend.bases for backend in backends))}):
        if all(backend.takes_block(candidate) for backend in backends):
            return candidate
    demands = "; ".join(f"{backend.name}: {_sizes(backend)}" for backend in backends)
    raise ModelError(
        f"the attention backends share no block size ({demands}); no --block-size suits this model"
    )


def _state_interval(states: Sequence[MambaState], context: Context) -> int:
    """Tokens of which a block must be a multiple for the sake of its states."""
    if context.state_mode == ALIGN:
        return lcm(*(state.prefill_checkpoint_alignment or 1 for state in states))
    if context.state_mode == ALL:
        config = context.config
        chunk = config.optional_integer("mamba_chunk_size") or config.optional_integer("chunk_size")
        return context.engine.mamba_block_size or chunk or MAMBA1_CHUNK
    return 1


def _stride(spec: AttentionSpec, backend: Backend) -> int | MultipleOf | None:
    if backend.stride_if_quantized is not None and spec.quant_mode != "none":
        return backend.stride_if_quantized
    if backend.stride_rows is not None:
        return backend.stride_rows * spec.state_bytes
    if all(isinstance(size, int) for size in backend.block_sizes):
        return MultipleOf(max(backend.bases))
    return None


def _sizes(backend: Backend) -> str:
    return ", ".join(
        f"any multiple of {size.base}" if isinstance(size, MultipleOf) else str(size)
        for size in backend.block_sizes
    )
