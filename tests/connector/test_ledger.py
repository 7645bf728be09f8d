"""A fill is done when every worker has reported it, and right when every report says so."""

import pytest

from decodebench.connector.ledger import Ledger
from decodebench.connector.metadata import JobReport, RequestFill
from decodebench.kv.writes import GroupWrites, PartialBlock


def fill(*groups):
    return RequestFill(tuple(groups), num_tokens=10)


def ordered(workers):
    ledger = Ledger(workers)
    ledger.order("a", fill(GroupWrites([1, 2], [PartialBlock(3, 0, 2)]), GroupWrites(zero=[9])))
    ledger.order("b", fill(GroupWrites([2, 4]), GroupWrites()))
    ledger.take_orders(7)
    return ledger


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("how", [{"pages": (3, 1)}, {"pages": ()}, {"pages": (4, 1), "error": "no memory"}])
def test_what_any_one_worker_got_wrong_is_told_with_every_request(wrong, how):
    ledger = ordered(3)
    for rank in range(3):
        report = how if rank == wrong else {"pages": (4, 1)}
        filled = ledger.report(JobReport(7, rank, **report))
        assert bool(filled) == (rank == 2)
    assert [each.request_id for each in filled] == ["a", "b"]
    assert all(f"worker {wrong}" in each.error for each in filled)


def test_a_block_of_two_requests_is_owed_once_and_counted_with_both():
    ledger = ordered(1)
    assert ledger.in_flight == 2
    filled = ledger.report(JobReport(7, 0, (4, 1)))
    assert [(each.pages, each.error) for each in filled] == [((3, 1), None), ((2, 0), None)]
    assert ledger.in_flight == 0
