"""What a server's owner may set: `kv_connector_extra_config` of the transfer config.

Keys and defaults of the in-tree decode-bench connector are known here too, so its users add only
`kv_connector_module_path`: `fill_mean` and `fill_std` mean the same, `startup_fill` is accepted and changes nothing. A
wrong key or value stops the server at start with one message: a benchmark that silently ran another configuration is
worse than none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

FLOAT32_MAX = 3.4028234663852886e38
"""Beyond it numbers are drawn as infinities, whose differences are no numbers."""


DEFAULT_NUMBER = 0.015
"""Mean of a fill where none is asked for, as in the in-tree connector; also the spread of a normal one."""


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    fill_mean: float = DEFAULT_NUMBER
    fill_std: float = 0.0
    startup_fill: bool = False
    async_fill: bool = True
    seed: int = 0
    require_salt: bool = False
    trace_dir: str | None = None
    connectors: tuple[str, ...] = ()  # all children of the MultiConnector that ours is one of
    donor_bank_gib: float = 4.0  # host memory of each worker
    audit: bool = False

    @classmethod
    def from_extra(cls, extra: Mapping[str, Any]) -> "ConnectorConfig":
        """Check and take `kv_connector_extra_config`.

        Raises:
            ValueError: an unknown key, a wrong type or a value out of range; the message names the key.
        """
        known = {field.name for field in fields(cls)}
        for key in extra:
            if key not in known:
                raise ValueError(
                    f"DecodeBenchConnector: unknown key {key!r} in kv_connector_extra_config; "
                    f"known keys: {', '.join(sorted(known))}"
                )
        config = cls(**{key: _checked(key, value) for key, value in extra.items()})
        if config.fill_std < 0:
            raise ValueError(f"DecodeBenchConnector: fill_std must not be negative, got {config.fill_std}")
        if config.donor_bank_gib < 0:
            raise ValueError(
                f"DecodeBenchConnector: donor_bank_gib must not be negative, got {config.donor_bank_gib}"
            )
        return config


def _checked(key: str, value: Any) -> Any:
    kind = _KINDS[key]
    if kind == _NUMBER and _is_number(value):
        return float(value)
    if kind == _SEED and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    if kind == "true or false" and isinstance(value, bool):
        return value
    if kind == "a path" and isinstance(value, str) and value:
        return value
    if kind == "a list of names" and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ValueError(
        f"DecodeBenchConnector: {key} in kv_connector_extra_config must be {kind}, got {value!r}"
    )


def _is_number(value: Any) -> bool:
    # Compared before it is converted: an integer of hundreds of digits is legal JSON and overflows float().
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= FLOAT32_MAX


_NUMBER = "a finite number that float32 holds"
_SEED = "an integer from 0 to 2**63 - 1"

_KINDS = {
    "fill_mean": _NUMBER,
    "fill_std": _NUMBER,
    "startup_fill": "true or false",
    "async_fill": "true or false",
    "seed": _SEED,
    "require_salt": "true or false",
    "trace_dir": "a path",
    "connectors": "a list of names",
    "donor_bank_gib": _NUMBER,
    "audit": "true or false",
}
