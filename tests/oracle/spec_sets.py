"""Random models as hypothesis strategies: some kinds of layers, on some layers each, in some order."""

from dataclasses import replace

from hypothesis import strategies as st

from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits
from decodebench.kv.rules import rules_for
from decodebench.kv.specs import (
    ALIGN,
    INDEXER,
    MLA,
    NONE,
    SPARSE,
    ChunkedLocal,
    CircularBuffer,
    FullAttention,
    MambaState,
    MultipleOf,
    SlidingWindow,
    SlidingWindowMLA,
)

BLOCKS = st.sampled_from([16, 16, 16, 32, 64, 128])
WINDOWS = st.sampled_from([128, 128, 512, 1024])
PAGES = st.sampled_from([None, None, None, 16384, 32768, 65536, 1 << 20])
STRIDES = st.sampled_from([None, None, None, None, 256, 512, 576, MultipleOf(16), MultipleOf(64)])


def _attention(**more):
    return {
        "block_size": BLOCKS,
        "num_kv_heads": st.sampled_from([1, 2, 4, 8]),
        "head_size": st.sampled_from([64, 128, 128, 256, 260]),
        "dtype": st.sampled_from(["bfloat16", "bfloat16", "float8_e4m3fn", "uint8"]),
        "page_bytes_padded": PAGES,
        "block_stride_alignment": STRIDES,
        "dcp_sharded": st.sampled_from([True, True, True, False]),
        **more,
    }


def _latent(**more):
    return {
        "num_kv_heads": st.just(1),
        "head_size": st.sampled_from([132, 512, 576]),
        "dtype": st.sampled_from(["bfloat16", "uint8"]),
        "alignment": st.sampled_from([None, None, 576]),
        "state_content_bytes": st.sampled_from([None, None, 584]),
        "cache_dtype_str": st.sampled_from(["auto", "auto", "fp8_ds_mla"]),
        "model_version": st.sampled_from([None, None, "deepseek_v4"]),
        "block_stride_alignment": STRIDES,
        **more,
    }


full = st.builds(
    FullAttention,
    **_attention(
        sliding_window=st.sampled_from([None, None, None, 128, 512]),
        attention_chunk_size=st.sampled_from([None, None, None, None, 8192]),
        non_causal=st.booleans(),
        quant_mode=st.sampled_from(["none", "none", "fp8_per_tensor"]),
    ),
)
window = st.builds(
    SlidingWindow, **_attention(sliding_window=WINDOWS, extra_retained_tokens=st.sampled_from([0, 0, 2]))
)
chunked = st.builds(ChunkedLocal, **_attention(attention_chunk_size=st.sampled_from([1024, 8192])))
ring = st.builds(CircularBuffer, **_attention(block_size=st.sampled_from([4, 8])))
mla = st.builds(
    MLA,
    **_latent(
        block_size=st.sampled_from([128, 256, 256]),
        tokens_per_state=st.sampled_from([1, 1, 4, 128]),
        cache_role=st.sampled_from([SPARSE, SPARSE, INDEXER]),
    ),
)
window_mla = st.builds(
    SlidingWindowMLA,
    **_latent(
        block_size=st.sampled_from([4, 8, 64]),
        head_size=st.sampled_from([512, 1024, 2048]),
        sliding_window=st.sampled_from([8, 128]),
        bounded_replay=st.sampled_from([False, False, False, True]),
    ),
)
STATES = {
    ((3, 1024),): ("bfloat16",),
    ((3, 8192), (32, 128, 128)): ("bfloat16", "float32"),
    ((3, 64), (8, 64, 64)): ("bfloat16", "bfloat16"),
}


def _state(shapes, **fields):
    return MambaState(shapes=shapes, dtypes=STATES[shapes], **fields)


state = st.builds(
    _state,
    shapes=st.sampled_from(list(STATES)),
    block_size=st.sampled_from([16, 528, 4096]),
    page_bytes_padded=st.sampled_from([None, 32768, 1 << 22]),
    num_speculative_blocks=st.sampled_from([0, 0, 1, 3]),
    num_prefill_checkpoint_blocks=st.sampled_from([0, 0, 1]),
    mamba_type=st.sampled_from(["mamba1", "mamba2", "gdn_attn", "short_conv"]),
)
kinds = st.one_of(full, window, chunked, ring, mla, window_mla, state)


def _possible(spec, cache_mode):
    """`spec` without padding that is less than its content or kernel blocks below a state; in the one cache mode."""
    if isinstance(spec, MLA) and isinstance(spec.block_stride_alignment, MultipleOf):
        spec = replace(spec, block_stride_alignment=MultipleOf(64) if spec.tokens_per_state <= 64 else None)
    if spec.page_bytes_padded is not None and spec.page_bytes_padded < spec.page_bytes_unpadded:
        spec = replace(spec, page_bytes_padded=None)
    return replace(spec, cache_mode=cache_mode) if isinstance(spec, MambaState) else spec


def _layers(draw, palette):
    """Layer name -> spec: each spec of the palette on one to thirty layers, in runs or interleaved."""
    counts = [draw(st.sampled_from([1, 2, 3, 5, 10, 12, 18, 19, 30])) for _ in palette]
    layers = [spec for spec, count in zip(palette, counts, strict=True) for _ in range(count)]
    if draw(st.booleans()):
        layers = [spec for i in range(max(counts)) for spec, n in zip(palette, counts, strict=True) if i < n]
    return {f"layers.{i}": spec for i, spec in enumerate(layers)}


@st.composite
def wild_models(draw):
    """One to four specs that have nothing to do with each other; the engine refuses many of these."""
    cache_mode = draw(st.sampled_from([NONE, ALIGN]))
    palette = [_possible(spec, cache_mode) for spec in draw(st.lists(kinds, min_size=1, max_size=4))]
    return _layers(draw, palette)


@st.composite
def related_models(draw):
    """Kinds of one attention geometry, as real hybrids have: pages are equal, or one is twice the other."""
    heads, head = draw(st.sampled_from([2, 4])), draw(st.sampled_from([64, 128]))
    shape = {"block_size": draw(BLOCKS), "num_kv_heads": heads, "head_size": head, "dtype": "bfloat16"}
    attention = FullAttention(**shape)
    wide = {**shape, "num_kv_heads": 2 * heads}
    palette = [
        attention,
        SlidingWindow(**draw(st.sampled_from([shape, wide])), sliding_window=draw(WINDOWS)),
        SlidingWindow(**shape, sliding_window=draw(WINDOWS)),
        FullAttention(
            **draw(st.sampled_from([shape, wide])), sliding_window=draw(st.sampled_from([None, 128]))
        ),
        ChunkedLocal(**shape, attention_chunk_size=8192),
        MambaState(
            block_size=shape["block_size"],
            shapes=((1, attention.page_bytes // 4),),
            dtypes=("bfloat16",),
            page_bytes_padded=attention.page_bytes,
            cache_mode=ALIGN,
            num_prefill_checkpoint_blocks=draw(st.sampled_from([0, 1])),
        ),
    ]
    chosen = draw(st.lists(st.sampled_from(palette), min_size=1, max_size=4, unique=True))
    return _layers(draw, chosen)


@st.composite
def packed_models(draw):
    """DeepSeek-V4's caches, any of them, on any number of layers."""
    row = {
        "num_kv_heads": 1,
        "head_size": 512,
        "dtype": "uint8",
        "state_content_bytes": 584,
        "alignment": 576,
    }
    keys = {"num_kv_heads": 1, "head_size": 132, "dtype": "uint8", "alignment": 576}
    floats = {"num_kv_heads": 1, "dtype": "float32", "alignment": 576}
    palette = [
        SlidingWindowMLA(**row, block_size=64, sliding_window=128, bounded_replay=draw(st.booleans())),
        MLA(**row, block_size=256, tokens_per_state=4),
        MLA(**row, block_size=256, tokens_per_state=128),
        MLA(**keys, block_size=256, tokens_per_state=4, cache_role=INDEXER),
        SlidingWindowMLA(**floats, head_size=2048, block_size=4, sliding_window=8),
        SlidingWindowMLA(**floats, head_size=512, block_size=4, sliding_window=8),
        SlidingWindowMLA(**floats, head_size=1024, block_size=8, sliding_window=128),
        CircularBuffer(block_size=8, num_kv_heads=1, head_size=72, head_size_v=0, dtype="bfloat16"),
        MambaState(block_size=256, shapes=((8, 64, 64),), dtypes=("float32",), cache_mode=ALIGN),
    ]
    chosen = draw(st.lists(st.sampled_from(palette), min_size=2, max_size=9, unique=True))
    return _layers(draw, chosen)


models = st.one_of(related_models(), packed_models(), wild_models())


@st.composite
def engines(draw):
    """Limits of an engine whose batch budget and length are sometimes tight."""
    return EngineLimits(
        max_model_len=draw(st.sampled_from([1, 100, 4096, 131072, 1048576]) | st.integers(1, 300_000)),
        max_num_batched_tokens=draw(st.sampled_from([512, 2048, 8192, 16384])),
        pipeline_parallel_size=draw(st.sampled_from([1, 1, 1, 2, 4])),
        decode_context_parallel_size=draw(st.sampled_from([1, 1, 1, 2])),
        async_scheduling=draw(st.booleans()),
        use_v2_model_runner=draw(st.booleans()),
        rules=rules_for("0.32"),
    )


layouts = st.sampled_from([*Layout, Layout.LBNHC, Layout.LBNHC, Layout.BLHNC, Layout.BLHNC])
