"""The step log of a made-up cohort, as a well-behaved engine writes it; tests then break single values."""

from collections.abc import Sequence

from decodebench.bench.window_plan import WindowPlan
from decodebench.results.steps import Steps

RELEASE_STEP = 100
STEP_NS = 10_000_000


def cohort_log(
    plan: WindowPlan, batch: int, *, durations: Sequence[int] | None = None, lead: int = 3, drafts: int = 0
) -> Steps:
    """`lead` empty steps of a gated engine, then one decode step a token, until `max_tokens`.

    Row of decode step k: `lead + k`. The last completion is unknown, since it comes after the finish hook.
    """
    decode = plan.max_tokens
    durations = [STEP_NS] * decode if durations is None else list(durations)
    rows = lead + decode
    contexts = [0] * lead + [plan.prompt_len + k for k in range(decode)]
    busy = [0] * lead + [batch] * decode
    done, now = [], 1_000
    for duration in [1_600_000] * lead + durations:
        now += duration
        done.append(now)
    done[-1] = 0
    return {
        "step": [RELEASE_STEP - lead + row for row in range(rows)],
        "scheduled_ns": [max(0, end - 500) for end in done],
        "done_ns": done,
        "num_reqs": busy,
        "decode_tokens": [n * (1 + drafts) for n in busy],
        "prefill_tokens": [0] * rows,
        "foreign_reqs": [0] * rows,
        "preempted": [0] * rows,
        "fills_in_flight": [1] * lead + [0] * decode,
        "gated": [batch] * lead + [0] * decode,
        "context_tokens": [n * context for n, context in zip(busy, contexts, strict=True)],
        "context_min": contexts,
        "context_max": contexts[:],
    }
