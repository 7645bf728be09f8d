"""Bytes moved as wide words.

A fill moves bytes, it does not compute. Torch's strided and indexed kernels work element by element, so the width of an
element is the speed: 16-byte words write scattered pages two to four times as fast as bytes do. `complex128` is the
widest element torch has; it is only moved here, never computed with, so every bit pattern survives.
"""

import struct
from math import gcd

import torch

_WORDS: dict[int, tuple[torch.dtype, str]] = {
    16: (torch.complex128, "<dd"),
    8: (torch.int64, "<q"),
    4: (torch.int32, "<i"),
    2: (torch.int16, "<h"),
    1: (torch.uint8, "<B"),
}
WIDEST = 16  # bytes


def widest_word(*byte_counts: int) -> int:
    """Bytes of the widest word that divides every one of `byte_counts` (offsets, strides, sizes, addresses)."""
    return gcd(WIDEST, *byte_counts)


def word_dtype(word: int) -> torch.dtype:
    """The dtype whose elements are moved as words of `word` bytes."""
    return _WORDS[word][0]


def word_value(raw: bytes) -> int | complex:
    """The Python number that torch stores as exactly the bytes `raw` when it fills a tensor of that word's dtype."""
    values = struct.unpack(_WORDS[len(raw)][1], raw)
    return complex(*values) if len(values) == 2 else int(values[0])
