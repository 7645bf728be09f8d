"""Numbers as a person reads them: one unit and one number of decimals for all values that stand in one column."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, log10
from statistics import median

_TIME_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))
_MOST_DECIMALS = 4
_TIME_DIGITS = 4  # significant ones
_NUMBER_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Formatter:
    """Writes every value of one column in the same unit with the same decimals."""

    unit: str
    scale: float
    decimals: int

    def __call__(self, value: float) -> str:
        return f"{value / self.scale:,.{self.decimals}f}"


def time_formatter(values_ns: Iterable[float]) -> Formatter:
    """For durations in ns: the unit in which the middle one is at least 1."""
    values = [value for value in values_ns if value > 0]
    middle = median(values) if values else 1e6
    unit, scale = next((pair for pair in _TIME_UNITS if middle >= pair[1]), _TIME_UNITS[-1])
    return Formatter(unit, scale, _decimals(values, scale, _TIME_DIGITS))


def number_formatter(values: Iterable[float]) -> Formatter:
    """For plain numbers, such as rates."""
    return Formatter("", 1.0, _decimals([value for value in values if value > 0], 1.0, _NUMBER_DIGITS))


def _decimals(values: list[float], scale: float, significant: int) -> int:
    """As many that the least value still shows `significant` digits, within reason."""
    if not values:
        return 0
    return min(max(significant - 1 - floor(log10(min(values) / scale)), 0), _MOST_DECIMALS)


def count(value: int) -> str:
    """As vLLM's flags write a count: 4000 is `4k`, 4096 is `4K`; any other number in full."""
    for factor, suffix in ((1000, "k"), (1024, "K")):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def duration(seconds: float) -> str:
    """A wait: `12 s`, `4 min 05 s`, `2 h 10 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
