"""Bytes of one element, by torch dtype name: what page sizes need, integers included."""

DTYPE_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of `dtype`; a name that torch does not have is a `ValueError`."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        accepted = ", ".join(DTYPE_BYTES)
        raise ValueError(f"dtype {dtype!r} is not known; accepted: {accepted}") from None
