"""Requests that become donors, on vLLM's real scheduler (engine.py)."""

import pytest

from tests.connector.engine import FULL, SLIDING, state_spec

IN_FLIGHT = pytest.mark.parametrize("in_flight", [1, 2, 3])
GROUPS = (FULL, SLIDING, state_spec())
NO_BLOCKS_HELD = 999


def donor(e, name="d0", prompt_len=200, **request):
    return e.add(
        decodebench={"donor": {"id": name}},
        prompt_len=prompt_len,
        max_tokens=request.pop("max_tokens", 1),
        **request,
    )


def free_blocks(e):
    return e.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
