"""The lines under a table: what a reader must know before quoting a figure."""

from decodebench.report.notes import engine_line, notes
from decodebench.results.provenance import Engine
from tests.report.test_terminal import row, shown
from tests.results.documents import document, valid_point


def test_connectors_beside_ours_are_named_in_the_order_in_which_they_are_asked():
    beside = Engine(model="m", connectors=("DecodeBenchConnector", "OffloadingConnector"))
    assert "asked in this order: DecodeBenchConnector then OffloadingConnector" in engine_line(beside)
    assert "connectors" not in engine_line(Engine(model="m", connectors=("DecodeBenchConnector",)))


def test_a_point_with_too_few_repeats_shows_no_interval_and_says_so():
    run = document("out", valid_point(0, 2, repeats=4), valid_point(1, 8))
    (said,) = [line for line in notes(run) if "Too few repeats" in line]
    assert said == "Too few repeats for an interval, which takes 5 or more: 2 x 1k (3)."
    assert not any("wider than" in line for line in notes(run))
    assert " - " in row(shown(run), "2", "1k")
