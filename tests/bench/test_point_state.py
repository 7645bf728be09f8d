"""What is recorded of a point."""

from decodebench.bench.grid import GridPoint
from decodebench.bench.point_state import unmeasured
from decodebench.bench.settings import Settings
from decodebench.results.provenance import Fill
from decodebench.results.status import Status


def test_a_point_that_no_server_was_there_for_says_which_fill_was_asked_for() -> None:
    settings = Settings(batch_sizes=(8,), context_lens=(1000,), seed=3, fill=Fill(content="donor"))
    point = unmeasured(GridPoint(0, 8, 1000), settings, Status.FAILED, "the engine died")
    assert (point.content, point.seed) == ("donor", 3)
