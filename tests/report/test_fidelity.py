"""The table of `decodebench fidelity`: a figure only where it was measured."""

from datetime import UTC, datetime
from io import StringIO

from decodebench.report.fidelity import print_fidelity
from decodebench.report.terminal import console_for
from decodebench.results.fidelity import Arm, AtEqualSpeed, Comparison, FidelityDocument, FidelityPoint
from decodebench.results.provenance import Host

REAL = Arm(step_time_ns=50_000_000, measured_context=1000, distinct_tokens=15.6)
FILLED = Arm(step_time_ns=42_000_000, measured_context=1001, distinct_tokens=9.5)


def printed(*points: FidelityPoint) -> list[str]:
    document = FidelityDocument(
        schema="decodebench.fidelity/1",
        out="out",
        started=datetime(2026, 11, 30, tzinfo=UTC),
        command=("fidelity",),
        seed=0,
        window_steps=64,
        precision_asked=0.015,
        host=Host(),
        points=points,
    )
    stream = StringIO()
    print_fidelity(document, console_for(stream))
    return stream.getvalue().splitlines()


def test_an_error_stands_with_its_interval_and_both_step_times():
    found = Comparison(
        fill="donor:1", launch=0, rounds=8, error=-0.16, low=-0.19, high=-0.13, real=REAL, filled=FILLED
    )
    lines = printed(FidelityPoint(batch_size=16, context_len=1000, comparisons=(found,)))
    (row,) = [line for line in lines if "donor:1" in line]
    assert " ".join(row.split()) == "16 1k donor:1 -16.0% -19.0% to -13.0% - 9.5 15.6 - 8 50.00 42.00"
    assert any(line.startswith("1 of 1 intervals are wider than +-1.5 %") for line in lines)


def test_the_error_at_equal_speed_is_quoted_and_that_of_the_means_stands_beside_it():
    found = Comparison(
        fill="donor:1",
        launch=0,
        rounds=20,
        spoiled=12,
        error=-0.1,
        low=-0.3,
        high=0.1,
        at_equal_speed=AtEqualSpeed(error=-0.16, low=-0.17, high=-0.15, draws=8, rounds=30),
        real=REAL,
        filled=FILLED,
    )
    lines = printed(FidelityPoint(batch_size=16, context_len=1000, comparisons=(found,)))
    (row,) = [line for line in lines if "donor:1" in line]
    figures = "-16.0% -17.0% to -15.0% -10.0% (-30.0% to +10.0%) 9.5 15.6 8 30 50.00 42.00"
    assert " ".join(row.split()) == f"16 1k donor:1 {figures}"
    assert any("at equal speed" in line for line in lines)
    assert not any("wider than" in line for line in lines), "that of the means is, and is not quoted"


def test_what_was_not_measured_says_so_and_why():
    spoiled = Comparison(fill="constant", launch=0, spoiled=6, reason="step 7 preempted 1 request(s)")
    lines = printed(
        FidelityPoint(batch_size=16, context_len=1000, comparisons=(spoiled,)),
        FidelityPoint(batch_size=99, context_len=1000, reason="does not fit: max_num_seqs is 64"),
    )
    rows = [line for line in lines if "not measured" in line]
    assert len(rows) == 2
    assert "preempted" in rows[0]
    assert "max_num_seqs is 64" in rows[1]
    assert "%" not in rows[0] + rows[1]


def test_rounds_left_out_are_counted_beside_the_figure():
    found = Comparison(
        fill="donor", launch=0, rounds=1, spoiled=2, error=0.01, real=REAL, filled=FILLED, reason="drifting"
    )
    lines = printed(FidelityPoint(batch_size=16, context_len=1000, comparisons=(found,)))
    assert any("2 of 3 rounds left out: drifting" in line for line in lines)
