"""The lines under a table: what a reader must know before quoting a figure."""

from decodebench.report.notes import engine_line
from decodebench.results.provenance import Engine


def test_connectors_beside_ours_are_named_in_the_order_in_which_they_are_asked():
    beside = Engine(model="m", connectors=("DecodeBenchConnector", "OffloadingConnector"))
    assert "asked in this order: DecodeBenchConnector then OffloadingConnector" in engine_line(beside)
    assert "connectors" not in engine_line(Engine(model="m", connectors=("DecodeBenchConnector",)))
