"""What a request may ask of the connector: the `decodebench` key of its `kv_transfer_params`.

    {"decodebench": {"fill": true, "info": false, "cohort": {"id": "p3r1", "size": 8, "timeout_s": 600},
                     "donors": ["d0", "d1"], "seed": 3, "audit": true}}
    {"decodebench": {"donor": {"id": "d0"}, "forget": ["d9"]}}

Values come from anybody who can reach the API, and an exception in a scheduler hook ends the engine. So parsing never
raises: a request that asks for something wrong is run normally, and its response says what was wrong.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

KEY = "decodebench"
MAX_COHORT = 1 << 20  # members; far above any max_num_seqs
DEFAULT_TIMEOUT_S = 600.0
MAX_TIMEOUT_S = 24 * 3600.0
MAX_ID_LENGTH = 256
MAX_DONORS = 4096  # named by one request
MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CohortParams:
    """The start line a request waits at: `size` requests that name the same `id`.

    With `prefill` its members are really prefilled, started together, and not filled.
    """

    id: str
    size: int
    timeout_s: float = DEFAULT_TIMEOUT_S
    prefill: bool = False


@dataclass(frozen=True, slots=True)
class RequestParams:
    """What one request asks for. `error` set: nothing else is, and the response carries it."""

    fill: bool = True
    info: bool = False
    cohort: CohortParams | None = None
    donor: str | None = None  # become the donor of this name
    donors: tuple[str, ...] = ()  # fill from these
    seed: int = 0  # which pages of which donors
    forget: tuple[str, ...] = ()
    audit: bool = False  # prove what the fill wrote
    unfillable: str | None = None  # why the donors it names cannot fill it: found by intake.py
    error: str | None = None

    @classmethod
    def parse(cls, kv_transfer_params: Any) -> "RequestParams":
        """Read the API field; never raises, whatever the value."""
        if not isinstance(kv_transfer_params, dict) or KEY not in kv_transfer_params:
            return _NOTHING_ASKED
        try:
            return _parse(kv_transfer_params[KEY])
        except _Refused as refusal:
            return cls(error=f"kv_transfer_params.{KEY}{refusal}")


_NOTHING_ASKED = RequestParams()


def withhold(extra_args: dict[str, Any] | None) -> dict[str, Any] | None:
    """A request's `extra_args` without what is ours.

    NOTE: the engine pickles them to its workers, and JSON some hundred levels deep is too deep for that: it ended the
    engine (vLLM 0.32, `MessageQueue.enqueue`). No worker needs what the scheduler half has read.
    """
    if extra_args is None:
        return None
    asked = extra_args.get("kv_transfer_params")
    if not isinstance(asked, dict) or KEY not in asked:
        return extra_args
    return {**extra_args, "kv_transfer_params": {name: asked[name] for name in asked if name != KEY}}


class _Refused(Exception):
    """A wrong value: the path below our key, and what is accepted there."""


def _parse(asked: Any) -> RequestParams:
    table = _table("", asked, {"fill", "info", "cohort", "donor", "donors", "seed", "forget", "audit"})
    fill = _flag(".fill", table.get("fill", True))
    info = _flag(".info", table.get("info", False))
    forget = _ids(".forget", table["forget"]) if "forget" in table else ()
    if "donor" in table:
        for other in ("cohort", "donors", "seed"):
            if other in table:
                raise _Refused(f".donor and .{other} exclude each other: a donor is really prefilled")
        if table.get("fill"):
            raise _Refused(".donor is really prefilled; leave out fill, or set it to false")
        name = _id(".donor.id", _table(".donor", table["donor"], {"id"}).get("id"))
        return RequestParams(fill=False, info=info, donor=name, forget=forget)
    cohort = table.get("cohort")
    for other in ("cohort", "donors"):
        if not fill and table.get(other) is not None:
            raise _Refused(f".{other} needs fill; leave out fill: false, or the {other}")
    donors = _ids(".donors", table["donors"]) if "donors" in table else ()
    line = None if cohort is None else _cohort(cohort)
    if line is not None and line.prefill:
        for other in ("fill", "donors"):
            if table.get(other):
                raise _Refused(f".cohort.prefill and .{other} exclude each other")
        fill = False
    if "seed" in table and not donors:
        raise _Refused(".seed needs donors: it chooses among their pages")
    return RequestParams(
        fill=fill,
        info=info,
        cohort=line,
        donors=donors,
        seed=_seed(table.get("seed", 0)),
        forget=forget,
        audit=_flag(".audit", table.get("audit", False)),
    )


def _cohort(asked: Any) -> CohortParams:
    table = _table(".cohort", asked, {"id", "size", "timeout_s", "prefill"})
    name, size, timeout = table.get("id"), table.get("size"), table.get("timeout_s", DEFAULT_TIMEOUT_S)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_COHORT:
        raise _Refused(f".cohort.size must be a whole number from 1 to {MAX_COHORT}, got {_short(size)}")
    if not _is_seconds(timeout):
        raise _Refused(
            f".cohort.timeout_s must be seconds above 0, at most {MAX_TIMEOUT_S:.0f}, got {_short(timeout)}"
        )
    prefill = _flag(".cohort.prefill", table.get("prefill", False))
    return CohortParams(_id(".cohort.id", name), size, float(timeout), prefill)


def _id(path: str, value: Any) -> str:
    # Printable ASCII: the id goes back in the response, and a lone surrogate there cannot be encoded.
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_ID_LENGTH
        or not (value.isascii() and value.isprintable())
    ):
        raise _Refused(f"{path} must be 1 to {MAX_ID_LENGTH} printable ASCII characters, got {_short(value)}")
    return value


def _ids(path: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_DONORS:
        raise _Refused(f"{path} must be a list of 1 to {MAX_DONORS} donor ids, got {_short(value)}")
    ids = tuple(_id(f"{path}[{at}]", each) for at, each in enumerate(value))
    if len(set(ids)) < len(ids):
        raise _Refused(f"{path} names a donor twice")
    return ids


def _seed(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SEED:
        raise _Refused(f".seed must be a whole number from 0 to {MAX_SEED}, got {_short(value)}")
    return value


def _table(path: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused(f"{path} must be an object, got {_short(value)}")
    for key in value:
        if not isinstance(key, str) or key not in known:
            raise _Refused(f"{path} has an unknown key {_short(key)}; known: {', '.join(sorted(known))}")
    return value


def _flag(path: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused(f"{path} must be true or false, got {_short(value)}")
    return value


def _is_seconds(value: Any) -> bool:
    # NOTE: an int of thousands of digits is legal JSON and overflows float(); compare before converting.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value <= MAX_TIMEOUT_S and isfinite(value)


def _short(value: Any) -> str:
    """A value as an error may quote it: its type and a bounded piece of it (a huge int has no cheap repr)."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 64:
        return "an integer beyond 64 bits"
    if isinstance(value, list | tuple | dict | set):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
