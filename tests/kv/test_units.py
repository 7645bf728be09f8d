"""Numbers as vLLM writes them."""

import pytest

from decodebench.errors import UserError
from decodebench.kv.units import parse_bytes, parse_count, parse_counts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("4k", 4000),
        ("4K", 4096),
        ("25.6k", 25600),
        ("1m", 10**6),
        ("1M", 2**20),
        ("0.3k", 300),
        ("0", 0),
    ],
)
def test_counts_are_read_as_vllm_reads_them(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "-4", "4.5K", "4.5", "4 k", "4kk", "1e3", "٤", "4KiB", "auto", "0x10"]
)
def test_what_is_no_count_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match="--context-len"):
        parse_count(text, "--context-len")


def test_lists_are_read_and_must_be_positive() -> None:
    assert parse_counts("8k,128k") == (8000, 128000)
    for text in ("8k,", ",", "8k;1", "0", "4,0"):
        with pytest.raises(UserError):
            parse_counts(text)


@pytest.mark.parametrize("text", ["-1", "0", "1.5", "", "a", "4,-1", "4,0"])
def test_what_is_not_above_0_in_a_list_is_called_that(text: str) -> None:
    wrong = text.rpartition(",")[2]
    with pytest.raises(UserError, match=f"--batch-size '{wrong}' is not a whole number above 0"):
        parse_counts(text, "--batch-size")


@pytest.mark.parametrize("text", ["1,,2", "1,", ",1", ","])
def test_a_comma_too_many_is_called_an_empty_value(text: str) -> None:
    with pytest.raises(UserError, match="empty value"):
        parse_counts(text, "--batch-size")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40GiB", 40 << 30),
        ("64.68GiB", 64 * 2**30 + 68 * 2**30 // 100),
        ("512 MiB", 512 << 20),
        ("40GB", 40 * 10**9),
        ("10kB", 10_000),
        ("1G", 2**30),
        ("1g", 10**9),
        ("123456", 123456),
        ("0.5KiB", 512),
    ],
)
def test_memory_is_read(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "GiB", "64.68", "40 GiBs", "40gib", "-1GiB", "4 0GiB", "1.5G"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="amount of memory"):
        parse_bytes(text)
