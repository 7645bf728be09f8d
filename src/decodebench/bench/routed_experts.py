"""How many experts a batch visits in a step, where the server tells (`vllm serve --enable-return-routed-experts`).

vLLM 0.32 puts the experts that a request's tokens were routed to into its answer: base64 of an `.npy` file of shape
(tokens - 1, layers, experts per token), the last token being one that was never computed
(entrypoints/openai/completion/protocol.py, `routed_experts`). Rows are counted from the end here, so that it does not
matter how many tokens of the prompt they begin with.
"""

import base64
import binascii
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decodebench.bench.client import Answer
from decodebench.bench.window_plan import WindowPlan

Routes = NDArray[np.integer]  # (decode steps, layers, experts per token)


def distinct_experts(answers: Sequence[Answer], plan: WindowPlan) -> float | None:
    """Different experts that the requests of a rank were routed to in one step and layer, mean over window and layers.

    None where the server did not tell of every request.
    """
    found = []
    for rank in sorted({answer.rank for answer in answers}):
        routes = [_routes(answer.experts, plan) for answer in answers if answer.rank == rank]
        told = [each for each in routes if each is not None]
        if len(told) < len(routes) or len({each.shape for each in told}) != 1:
            return None
        found.append(_distinct(np.stack(told, axis=2)))
    return float(np.mean(found)) if found else None


def _distinct(routes: Routes) -> float:
    """`routes`: (steps, layers, requests, experts per token)."""
    steps, layers = routes.shape[:2]
    ordered = np.sort(routes.reshape(steps, layers, -1), axis=2)
    return float(1 + np.mean(np.count_nonzero(np.diff(ordered, axis=2), axis=2)))


def _routes(text: str, plan: WindowPlan) -> Routes | None:
    """Of the decode steps of the window: step k computes the token before the k-th output token."""
    try:
        rows = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
    except (ValueError, EOFError, binascii.Error):
        return None  # nothing, or nothing that this version of ours can read
    if rows.ndim != 3 or not np.issubdtype(rows.dtype, np.integer) or len(rows) < plan.max_tokens:
        return None
    decoded: Routes = rows[len(rows) - plan.max_tokens :]
    return decoded[plan.warmup_steps : plan.warmup_steps + plan.length]
