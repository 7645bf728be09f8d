"""What the hybrid manager off costs: tokens that fit, bytes a request needs, the largest batch at each context."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodebench.planner.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One context length, with the manager on and off. `max_requests` are None where no memory was named."""

    context_len: int
    bytes_on: int
    bytes_off: int
    max_requests_on: int | None
    max_requests_off: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Tokens are those of the engine's own log line, at `max_model_len`."""

    tokens_on: int | None
    tokens_off: int | None
    requests: tuple[CostRow, ...]


def cost_of_off(plan: "Plan") -> Cost | None:
    """The comparison; None where the engine does not start one of the two ways."""
    on, off = plan.on, plan.off
    if on is None or off is None:
        return None
    known = on.memory.is_known
    rows = [
        CostRow(
            context_len=with_it.context,
            bytes_on=with_it.bytes,
            bytes_off=without.bytes,
            max_requests_on=with_it.max_requests if known else None,
            max_requests_off=without.max_requests if known else None,
        )
        for with_it, without in zip(on.requests, off.requests, strict=True)
    ]
    return Cost(
        tokens_on=on.pool.logged_tokens if known else None,
        tokens_off=off.pool.logged_tokens if known else None,
        requests=tuple(rows),
    )
