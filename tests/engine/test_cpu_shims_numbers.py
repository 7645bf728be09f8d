"""The shims that compute give the numbers the model means: a prefill of n tokens is n decode steps."""

import importlib
import sys

import pytest

from decodebench.engine import distribution

if not distribution.is_cpu_build():
    pytest.skip("vLLM's CPU build is not installed", allow_module_level=True)

torch = pytest.importorskip("torch")

from decodebench.engine.cpu_shims import (  # noqa: E402
    mamba1_decode_step,
    mamba1_selective_scan,
    mamba2_chunk_states,
    mamba2_prefill_checkpoint,
)

COMBINED = "vllm.model_executor.layers.mamba.ops.ssd_combined"


@pytest.fixture(scope="module", autouse=True)
def mended():
    import vllm.model_executor.layers.mamba.ops.cpu.mamba_ssm as scan

    mamba2_chunk_states.SHIM.mend(scan)
    if COMBINED in sys.modules:  # imported by an earlier test, it holds the functions of before
        importlib.reload(sys.modules[COMBINED])


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.mark.parametrize("starts_from_state", [False, True])
def test_mamba1_scan_of_a_prompt_equals_its_decode_steps(draw, starts_from_state: bool):
    dim, dstate, tokens, slot = 32, 16, 7, 2
    A, D, bias = -draw(dim, dstate).abs(), draw(dim), draw(dim)
    u, dt, z = draw(dim, tokens), draw(dim, tokens), draw(dim, tokens)
    B, C = draw(dstate, tokens), draw(dstate, tokens)
    scanned = draw(4, dim, dstate)
    stepped = scanned.clone()
    if not starts_from_state:
        stepped[slot] = 0

    y = mamba1_selective_scan.selective_scan(
        *(u, scanned, dt, A, B, C, D, z, bias),
        delta_softplus=True,
        cache_indices=torch.tensor([slot]),
        has_initial_state=torch.tensor([starts_from_state]),
        query_start_loc=torch.tensor([0, tokens]),
    )

    for now in range(tokens):
        out = torch.empty(1, dim)
        at = torch.tensor([slot], dtype=torch.int32)
        mamba1_decode_step.decode_step(
            *(stepped, u[:, now][None], dt[:, now][None], A, B[:, now][None], C[:, now][None], D, bias),
            z=z[:, now][None],
            dt_softplus=True,
            state_batch_indices=at,
            dst_state_batch_indices=at,
            out=out,
        )
        torch.testing.assert_close(out[0], y[:, now], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scanned, stepped, rtol=1e-4, atol=1e-4)


def test_mamba1_step_equals_the_kernel_of_mamba2_where_both_mean_the_same(draw):
    """All channels share A, dt and D: then one head of Mamba-2 is a Mamba-1 layer."""
    from vllm import _custom_ops as ops

    requests, dim, dstate = 3, 32, 16
    A, D, bias = -torch.ones(dim, dstate), torch.full((dim,), 0.7), torch.full((dim,), 0.3)
    dt = draw(requests, 1).expand(requests, dim).contiguous()
    x, z, B, C = draw(requests, dim), draw(requests, dim), draw(requests, dstate), draw(requests, dstate)
    slots = torch.tensor([5, 2, 4], dtype=torch.int32)
    ours = draw(6, dim, dstate)
    theirs = ours.clone()
    out, expected = torch.empty(requests, dim), torch.empty(requests, dim)
    where = {"state_batch_indices": slots, "dst_state_batch_indices": slots}
    mamba1_decode_step.decode_step(ours, x, dt, A, B, C, D, bias, z=z, dt_softplus=True, out=out, **where)
    headed = [t.unsqueeze(1) for t in (theirs, x, dt)], [t.unsqueeze(1) for t in (B, C)]
    ops.selective_state_update_cpu(
        *(*headed[0], A[None], *headed[1], D[None], z.unsqueeze(1), bias[None], True),
        *(slots, slots, 0, expected.unsqueeze(1), None, None),
    )
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_mamba1_scan_leaves_other_slots_and_padding_alone(draw):
    dim, dstate = 8, 16
    states = draw(4, dim, dstate)
    before = states.clone()
    mamba1_selective_scan.selective_scan(
        *(draw(dim, 5), states, draw(dim, 5), -draw(dim, dstate).abs()),
        *(draw(dstate, 5), draw(dstate, 5), draw(dim), draw(dim, 5), draw(dim)),
        delta_softplus=True,
        cache_indices=torch.tensor([0, 3]),  # slot 0 is padding
        has_initial_state=torch.tensor([False, True]),
        query_start_loc=torch.tensor([0, 2, 5]),
    )
    assert torch.equal(states[:3], before[:3])
    assert not torch.equal(states[3], before[3])


def test_mamba2_scan_by_chunks_equals_the_scan_of_whole_sequences(draw):
    from vllm.model_executor.layers.mamba.ops.ssd_combined import mamba_chunk_scan_combined_varlen

    heads, dim, dstate = 4, 64, 64
    sequences, chunks, owner, last = [0, 11, 16], [0, 4, 8, 11, 15, 16], [0, 0, 0, 1, 1], [2, 4]
    tokens = sequences[-1]
    x, dt = draw(tokens, heads, dim), draw(tokens, heads)
    A, B, C = -draw(heads).abs(), draw(tokens, 1, dstate), draw(tokens, 1, dstate)
    common = {
        "chunk_size": 4,
        "cu_seqlens": torch.tensor(sequences, dtype=torch.int32),
        "cu_chunk_seqlens": torch.tensor(chunks, dtype=torch.int32),
        "seq_idx": torch.tensor(owner, dtype=torch.int32),
        "last_chunk_indices": torch.tensor(last),
        "D": draw(heads),
        "dt_bias": draw(heads),
        "dt_softplus": True,
        "initial_states": draw(2, heads, dim, dstate),
    }
    whole, parts = torch.empty_like(x), torch.empty_like(x)
    ends = mamba_chunk_scan_combined_varlen(x, dt, A, B, C, out=whole, **common)
    states = mamba_chunk_scan_combined_varlen(
        x, dt, A, B, C, out=parts, return_intermediate_states=True, **common
    )
    assert len(states) == len(owner)
    torch.testing.assert_close(states[last], ends, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4)


def test_mamba2_checkpoint_is_written_into_its_block_and_nowhere_else(draw):
    from types import SimpleNamespace

    dim, window, tokens = 6, 3, 12
    x, chunk_states = draw(dim, tokens), draw(4, 2, 3, 5)
    conv_state, ssm_state = draw(5, dim, window), draw(5, 2, 3, 5)
    before = conv_state.clone(), ssm_state.clone()
    mamba2_prefill_checkpoint.store(
        SimpleNamespace(checkpoint_offsets=torch.tensor([0, 4]), state_indices=torch.tensor([0, 3])),
        torch.tensor([0, 2]),
        *(x, conv_state, chunk_states, ssm_state, torch.tensor([0, 5, 12])),
        state_len=window,
    )
    assert torch.equal(conv_state[3], x[:, 6:9])
    assert torch.equal(ssm_state[3], chunk_states[2])
    others = [0, 1, 2, 4]
    assert torch.equal(conv_state[others], before[0][others])
    assert torch.equal(ssm_state[others], before[1][others])
