"""The block sizes of a model's layers, settled as the engine settles them once all layers are known.

First a size that every attention backend takes, then, where layers keep recurrent state, a size whose attention page
holds a whole state page. Read in vLLM 0.32 `platforms/interface.py` (`_preferred_block_size_for_backends`,
`_align_hybrid_block_size`) and `v1/worker/utils.py customize_attention_spec`.

    page of 1,097,728 B, 2,048 B a token, kernel blocks of 16: ceil(1,097,728 / (16 x 2,048)) x 16 = 544 tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm

from decodebench.kv.arithmetic import ceil_div, round_up
from decodebench.kv.specs import MLA, AttentionSpec, LayerSpec, MambaState, MultipleOf, SlidingWindow
from decodebench.models.backends import Backend
from decodebench.models.base import Context, Layer
from decodebench.models.errors import ModelError
from decodebench.models.gpus import DEFAULT_BLOCK_SIZE

# Hybrid MLA models split blocks into kernel blocks of which 128 tokens must be a whole number.
MLA_HYBRID_BLOCK = 128


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


def settle(layers: Sequence[Layer], context: Context, max_model_len: int) -> Blocks:
    """The block sizes for all of `layers`, a drafter's included."""
    backends = backends_of(layers, context)
    attention = _attention_block(layers, backends, context)
    states = [layer for layer in layers if layer.kernel == "state"]
    if not states or not backends:
        return Blocks(attention=attention)
    bytes_per_token, latent = _bytes_per_token(layers)
    state_page = max(layer.build(block_size=1).page_bytes for layer in states)
    attention = max(
        attention, _hybrid_block(attention, bytes_per_token, latent, state_page, states, backends, context)
    )
    if context.engine.mamba_cache_mode == "align":
        state_block = attention
    else:
        state_block = context.engine.mamba_block_size or max_model_len
    page = attention * bytes_per_token
    return Blocks(attention=attention, state=state_block, state_page=None if page == state_page else page)


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
    engine = context.engine
    fixed = engine.gpu.fixed_block_sizes or {}
    kernels = {layer.kernel for layer in layers}
    forced = [fixed[kernel] for kernel in ("v4_mla", "mla", "dense") if kernel in kernels and kernel in fixed]
    if engine.block_size is not None:
        refusing = [backend for backend in backends if not backend.takes_block(engine.block_size)]
        if refusing:
            raise ModelError(
                f"--block-size {engine.block_size}: {refusing[0].name} takes blocks of "
                f"{', '.join(map(_described, refusing[0].block_sizes))} tokens"
            )
        return engine.block_size
    if forced:
        return forced[0]
    if all(backend.takes_block(DEFAULT_BLOCK_SIZE) for backend in backends):
        return DEFAULT_BLOCK_SIZE
    for candidate in sorted({lcm(*sizes) for sizes in product(*(backend.bases for backend in backends))}):
        if all(backend.takes_block(candidate) for backend in backends):
            return candidate
    raise ModelError(
        "the attention backends share no block size: "
        + "; ".join(
            f"{backend.name} {', '.join(map(_described, backend.block_sizes))}" for backend in backends
        )
    )


def _hybrid_block(
    attention: int,
    bytes_per_token: int,
    latent: bool,
    state_page: int,
    states: Sequence[Layer],
    backends: Sequence[Backend],
    context: Context,
) -> int:
    """The smallest block whose attention page holds a state page, in multiples that every kernel can split."""
    unit = max(min(backends[0].bases), attention)
    if latent:
        unit = max(unit, MLA_HYBRID_BLOCK)
    if context.engine.mamba_cache_mode == "align":
        unit = lcm(unit, *(_checkpoint_alignment(layer) for layer in states))
    block = unit * ceil_div(state_page, unit * bytes_per_token)
    return round_up(block, lcm(*(min(backend.bases) for backend in backends)))


def _checkpoint_alignment(layer: Layer) -> int:
    spec = layer.build(block_size=1)
    assert isinstance(spec, MambaState), "a state layer builds a state spec"
    return spec.prefill_checkpoint_alignment or 1


def _bytes_per_token(layers: Sequence[Layer]) -> tuple[int, bool]:
    """Bytes of one token in one attention layer of a hybrid model, and whether its rows are latent."""
    specs = [layer.build(block_size=1) for layer in layers if layer.kernel != "state"]
    return max(spec.page_bytes for spec in specs), isinstance(specs[0], MLA)


def _stride(spec: AttentionSpec, backend: Backend) -> int | MultipleOf | None:
    if backend.stride_if_quantized is not None and spec.quant_mode != "none":
        return backend.stride_if_quantized
    if backend.stride_rows is not None:
        return backend.stride_rows * spec.state_bytes
    if all(isinstance(size, int) for size in backend.block_sizes):
        return MultipleOf(max(backend.bases))
    return None


def _described(size: int | MultipleOf) -> str:
    return f"any multiple of {size.base}" if isinstance(size, MultipleOf) else str(size)
