"""Numbers and amounts of memory as users write them, in vLLM's own spelling.

>>> parse_count("4k"), parse_count("4K"), parse_count("25.6k")
(4000, 4096, 25600)
>>> parse_bytes("64.68GiB"), parse_bytes("1G"), parse_bytes("1g")
(69449621176, 1073741824, 1000000000)
"""

import re

from decodebench.errors import UserError

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BYTE_UNITS = {
    "B": 1,
    **{f"{prefix}iB": factor for prefix, factor in _BINARY.items()},
    "kB": 10**3,
    **{f"{prefix.upper()}B": factor for prefix, factor in _DECIMAL.items() if prefix != "k"},
}


def parse_count(text: str, field: str = "number") -> int:
    """A count: digits, or a decimal with k m g t (powers of 1,000), or digits with K M G T (powers of 1,024).

    As vLLM 0.32 `utils/argparse_utils.py human_readable_int`, which also refuses a decimal before a binary suffix.
    """
    found = re.fullmatch(r"(\d+)(\.\d+)?([kmgtKMGT]?)", text.strip(), re.ASCII)
    if found is None or (found[2] and found[3] not in _DECIMAL):
        raise UserError(
            f"{field} {text!r} is not a number",
            "write it as 4096, 4k (4,000) or 4K (4,096); decimals only with k, m, g, t",
        )
    digits, decimals, suffix = found[1], found[2] or "", found[3]
    factor = _DECIMAL.get(suffix) or _BINARY.get(suffix) or 1
    return _scaled(digits, decimals, factor)


def parse_counts(text: str, field: str = "number") -> tuple[int, ...]:
    """A comma-separated list of counts, each at least 1: `32,256` or `8k,128k`."""
    parts = text.split(",")
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise UserError(f"{field} {text!r} has an empty value", "write it as 1,8,32: no comma too many")
    return tuple(_parse_positive(part, field) for part in parts)


def _parse_positive(text: str, field: str) -> int:
    try:
        count = parse_count(text, field)
    except UserError as error:
        count, next_step = 0, error.next_step
    else:
        next_step = "every value must be at least 1"
    if count < 1:
        raise UserError(f"{field} {text!r} is not a whole number above 0", next_step)
    return count


def parse_bytes(text: str, field: str = "memory") -> int:
    """An amount of memory: bytes, `40GiB`, `40GB`, or vLLM's count with a suffix (`1G` is 2**30 bytes)."""
    found = re.fullmatch(r"(\d+)(\.\d+)?\s*([kKMGT]?i?B)", text.strip(), re.ASCII)
    if found is not None and found[3] in _BYTE_UNITS:
        return _scaled(found[1], found[2] or "", _BYTE_UNITS[found[3]])
    try:
        return parse_count(text, field)
    except UserError:
        raise UserError(
            f"{field} {text!r} is not an amount of memory", "write it as 64.68GiB, 40GB or a number of bytes"
        ) from None


def _scaled(digits: str, decimals: str, factor: int) -> int:
    """digits.decimals x factor in whole units, rounded down and without float error."""
    places = max(len(decimals) - 1, 0)
    return int(digits + decimals[1:]) * factor // int(10**places)
