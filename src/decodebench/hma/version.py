"""vLLM versions, as far as the rules of the hybrid manager and the table of connectors tell them apart: (0, minor)."""

import re

from decodebench.errors import UserError

Version = tuple[int, int]

OLDEST: Version = (0, 19)
"""The oldest version whose connectors and rules were read."""

NEWEST: Version = (0, 33)
"""The newest one; a later version is treated as this one, and the answer says so."""


def parse_version(text: str) -> Version:
    """
    >>> parse_version("0.32.0+cpu")
    (0, 32)
    """
    found = re.match(r"v?(\d+)\.(\d+)(?!\d)", text.strip())
    if found is None:
        raise UserError(f"vLLM version {text!r} is not a version number", "give it as in `0.32` or `0.32.0`")
    return int(found[1]), int(found[2])


def show(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
