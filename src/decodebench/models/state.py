"""Recurrent state of one tensor-parallel rank: Mamba, GDN, KDA, short convolution, linear attention.

Read in vLLM 0.32 `layers/mamba/mamba_utils.py MambaStateShapeCalculator`. Convolution states have the engine's default
orientation (state length, channels) and grow by one row for each speculative token.
"""

from functools import partial

from decodebench.kv.specs import MambaState
from decodebench.models.base import Context, Layer
from decodebench.models.errors import indivisible

MAMBA2_CHECKPOINTS_SINCE = (0, 32)
Shapes = tuple[tuple[int, ...], ...]


def divide(context: Context, what: str, value: int) -> int:
    """A rank's share; the engine refuses a remainder."""
    tp = context.engine.tensor_parallel_size
    if value % tp:
        raise indivisible(tp, value, what, context.config.source)
    return value // tp


def conv_shape(
    context: Context, what: str, channels: int, kernel: int, *, speculative: bool = True
) -> tuple[int, int]:
    drafts = context.engine.num_speculative_tokens if speculative else 0
    return kernel - 1 + drafts, divide(context, what, channels)


def mamba1_shapes(context: Context, *, intermediate: int, state: int, kernel: int) -> Shapes:
    conv = conv_shape(context, "Mamba channels", intermediate, kernel, speculative=False)
    return conv, (conv[1], state)


def mamba2_shapes(
    context: Context, *, intermediate: int, groups: int, heads: int, head: int, state: int, kernel: int
) -> Shapes:
    """Groups that the ranks do not divide are replicated along with their heads (`extra_groups_for_head_shards`)."""
    tp = context.engine.tensor_parallel_size
    sharded_groups = groups if groups % tp == 0 else tp
    conv = conv_shape(context, "Mamba channels", intermediate + 2 * sharded_groups * state, kernel)
    return conv, (divide(context, "Mamba heads", heads), head, state)


def gdn_shapes(
    context: Context, *, k_heads: int, v_heads: int, k_head: int, v_head: int, kernel: int
) -> Shapes:
    conv = conv_shape(context, "GDN channels", 2 * k_heads * k_head + v_heads * v_head, kernel)
    return conv, (divide(context, "GDN value heads", v_heads), v_head, k_head)


def kda_shapes(context: Context, *, heads: int, head: int, kernel: int) -> Shapes:
    conv = conv_shape(context, "KDA channels", 3 * heads * head, kernel)
    return conv, (divide(context, "KDA heads", heads), head, head)


def short_conv_shapes(context: Context, *, channels: int, kernel: int) -> Shapes:
    return (conv_shape(context, "convolution channels", channels, kernel),)


def linear_attention_shapes(context: Context, *, heads: int, head: int) -> Shapes:
    return ((divide(context, "linear-attention heads", heads), head, head),)


def state_layer(
    context: Context,
    index: int,
    module: str,
    *,
    mamba_type: str,
    shapes: Shapes,
    dtypes: tuple[str, ...],
    checkpoint_alignment: int | None = None,
) -> Layer:
    """A state layer; with `checkpoint_alignment` its prefill exports a block boundary's state into a further block."""
    build = partial(
        MambaState,
        shapes=shapes,
        dtypes=dtypes,
        mamba_type=mamba_type,
        cache_mode=context.state_mode,
        num_speculative_blocks=context.engine.num_speculative_tokens,
        num_prefill_checkpoint_blocks=int(checkpoint_alignment is not None),
        prefill_checkpoint_alignment=checkpoint_alignment,
    )
    return Layer(index=index, name=context.layer_name(index, module), kernel="state", build=build)


def mamba2_layer(
    context: Context, index: int, module: str, shapes: Shapes, ssm_dtype: str | None = None
) -> Layer:
    """From 0.32 on every Mamba-2 mixer exports checkpoints, at any token (`mamba_mixer2.py get_kv_cache_spec`)."""
    return state_layer(
        context,
        index,
        module,
        mamba_type="mamba2",
        shapes=shapes,
        dtypes=(context.dtypes.conv_state, context.dtypes.ssm_state(ssm_dtype)),
        checkpoint_alignment=1 if context.engine.vllm_version >= MAMBA2_CHECKPOINTS_SINCE else None,
    )
