import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.report.units import count, duration, number_formatter, percent, time_formatter


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (1024, "1K"),
        (4000, "4k"),
        (4096, "4K"),
        (1500, "1500"),
        (128_000, "128k"),
        (131_072, "128K"),
        (1_000_000, "1000k"),
    ],
)
def test_counts_are_written_as_vllm_reads_them(value: int, text: str) -> None:
    assert count(value) == text


@given(st.integers(0, 10**7))
def test_a_written_count_means_the_number(value: int) -> None:
    text = count(value)
    factor = {"k": 1000, "K": 1024}.get(text[-1], 1)
    assert int(text.rstrip("kK")) * factor == value


@pytest.mark.parametrize(
    ("values", "texts", "unit"),
    [
        ([2_134_000, 12_100_000], ["2.134", "12.100"], "ms"),
        ([81_234, 95_000], ["81.23", "95.00"], "us"),
        ([1_500_000_000], ["1.500"], "s"),
        ([512], ["512.0"], "ns"),
        ([80_000, 4_000_000, 40_000_000], ["0.0800", "4.0000", "40.0000"], "ms"),
        ([], [], "ms"),
    ],
)
def test_a_column_of_times_has_one_unit_and_as_many_decimals_as_its_least_value_needs(
    values: list[int], texts: list[str], unit: str
) -> None:
    formatter = time_formatter(values)
    assert [formatter(value) for value in values] == texts
    assert formatter.unit == unit


@given(st.lists(st.floats(1e-3, 1e12), min_size=1))
def test_a_column_of_numbers_shows_three_digits_of_its_least_value(values: list[float]) -> None:
    least = min(values)
    shown = float(number_formatter(values)(least).replace(",", ""))
    assert shown == pytest.approx(least, rel=0.0051 if least >= 0.01 else 0.06)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (7810, "2 h 10 min"),
    ],
)
def test_waits_are_written_in_the_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_fractions_are_written_in_percent() -> None:
    assert [percent(value) for value in (0.02, 0.0314, 0.00123, 0.5, 1.2)] == [
        "2 %",
        "3.1 %",
        "0.12 %",
        "50 %",
        "120 %",
    ]
