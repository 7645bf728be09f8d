"""Distinct experts per step, from bytes as vLLM encodes them."""

import numpy as np
import pytest

from decodebench.bench.client import Answer
from decodebench.bench.routed_experts import distinct_experts
from decodebench.bench.window_plan import WindowPlan

encode = pytest.importorskip("vllm.utils.serial_utils", reason="vLLM's own encoder").numpy2base64
PLAN = WindowPlan.of(500, max_model_len=4096, window_steps=8)
LAYERS, TOP_K = 3, 2


def answer(routes: np.ndarray | None, rank: int = 0) -> Answer:
    return Answer(
        rank, PLAN.prompt_len, PLAN.max_tokens, {}, experts="" if routes is None else encode(routes)
    )


def routes(expert_of, prompt_rows: int = 1, dtype=np.uint8) -> np.ndarray:
    """One request's experts: `expert_of(decode step, layer)` and the one after it; prompt tokens go elsewhere."""
    rows = np.full((prompt_rows - 1 + PLAN.max_tokens, LAYERS, TOP_K), 200, dtype)
    for step in range(PLAN.max_tokens):
        for layer in range(LAYERS):
            first = expert_of(step, layer)
            rows[prompt_rows - 1 + step, layer] = (first, first + 1)
    return rows


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_requests_that_go_apart_visit_more_experts_than_such_that_go_together(dtype):
    together = [answer(routes(lambda step, layer: step % 60, dtype=dtype)) for _ in range(4)]
    apart = [answer(routes(lambda step, layer, i=i: 10 * i, dtype=dtype)) for i in range(4)]
    assert distinct_experts(together, PLAN) == 2.0
    assert distinct_experts(apart, PLAN) == 8.0


def test_only_steps_of_the_window_count_and_each_layer_as_much():
    inside = range(PLAN.warmup_steps, PLAN.warmup_steps + PLAN.length)

    def member(i: int) -> Answer:
        return answer(routes(lambda step, layer: 10 * i if step in inside and layer == 0 else 0))

    assert distinct_experts([member(0), member(1)], PLAN) == pytest.approx((4 + 2 + 2) / 3)


def test_rows_of_the_prompt_do_not_shift_the_window():
    first = PLAN.warmup_steps

    def expert(step: int, layer: int) -> int:
        return 50 if step == first else 0

    found = [
        distinct_experts([answer(routes(expert, rows)), answer(routes(lambda *_: 0))], PLAN)
        for rows in (1, 9)
    ]
    assert found[0] == found[1] == pytest.approx(2 + 2 / PLAN.length)


def test_ranks_are_counted_apart():
    def member(i: int, rank: int) -> Answer:
        return answer(routes(lambda *_: 10 * i), rank)

    assert distinct_experts([member(0, 0), member(1, 1)], PLAN) == 2.0


@pytest.mark.parametrize(
    "text", ["", "no base64!", "AAAA", encode(np.zeros((3, LAYERS, TOP_K), np.uint8)), encode(np.zeros(3))]
)
def test_without_the_routes_of_every_request_nothing_is_said(text):
    told = answer(routes(lambda *_: 0))
    silent = Answer(0, PLAN.prompt_len, PLAN.max_tokens, {}, experts=text)
    assert distinct_experts([told, silent], PLAN) is None
    assert distinct_experts([silent, silent], PLAN) is None
