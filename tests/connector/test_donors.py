"""Donors on vLLM's real scheduler: kept before their blocks go, refused with numbers, forgotten."""

import pytest

from decodebench.connector.layout import GroupLayers
from tests.connector.donor_requests import GROUPS, IN_FLIGHT, NO_BLOCKS_HELD, donor, free_blocks
from tests.connector.engine import FULL, SLIDING, Workers, state_spec


@IN_FLIGHT
@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("groups", [GROUPS, (FULL, SLIDING, state_spec("align", 64))])
def test_a_donor_is_really_prefilled_and_its_pages_of_every_group_are_kept(engine, groups, delay, in_flight):
    workers = Workers(delay=delay)
    e = engine(groups=groups, in_flight=in_flight, workers=workers)
    request = donor(e, prompt_len=201)
    e.run()
    assert sum(sum(batch.values()) for batch in e.batches) == 201
    answer = e.answer(request)["donor"]
    assert answer | {"id": "d0", "tokens": 201, "pages": [13, 5, 1]} == answer
    (blocks,) = workers.held.values()
    assert [len(ids) for ids in blocks] == [13, 5, 1]
    assert 0 not in {block for ids in blocks for block in ids}
    assert workers.sent == [request]
    assert free_blocks(e) == NO_BLOCKS_HELD


@IN_FLIGHT
def test_blocks_of_a_donor_stay_until_every_worker_has_copied_them(engine, in_flight):
    workers = Workers(delay=4)
    e = engine(in_flight=in_flight, workers=workers)
    request = donor(e)
    e.run(until=lambda: request in e.responses)
    for _ in range(3):
        assert free_blocks(e) < NO_BLOCKS_HELD
        assert workers.sent == []
        e.step()
    e.run()
    assert workers.sent == [request]
    assert free_blocks(e) == NO_BLOCKS_HELD


@IN_FLIGHT
def test_a_donor_that_is_preempted_in_its_prefill_is_kept_whole(engine, in_flight):
    """The pool is full to the last block when it is admitted; the other request's next block costs it its own."""
    e = engine(num_blocks=24, in_flight=in_flight, max_num_batched_tokens=32, max_num_seqs=16)
    other = e.add(prompt_len=100, max_tokens=100)
    e.run(until=lambda: len(e.outputs.get(other, ())) > 6)
    request = donor(e, prompt_len=250)
    e.run(until=lambda: e.scheduler.requests[request].num_preemptions)
    e.run()
    assert e.answer(request)["donor"]["pages"] == [16]
    (blocks,) = e.workers.held.values()
    assert len(set(blocks[0])) == 16
    assert free_blocks(e) == 23


def test_a_bank_over_its_limit_refuses_with_numbers_and_keeps_nothing(engine):
    page = FULL.page_size_bytes
    e = engine(extra={"donor_bank_gib": 20 * page / 2**30})
    kept = donor(e, "d0", 160)
    refused = donor(e, "d1", 176)
    e.run()
    assert e.answer(kept)["donor"]["bytes"] == 10 * page
    error = e.answer(refused)["error"]
    assert f"needs {11 * page:,} bytes" in error
    assert f"{10 * page:,} of {20 * page:,} free" in error
    assert len(e.workers.held) == 1
    assert free_blocks(e) == NO_BLOCKS_HELD
    e.add(decodebench={"forget": ["d0"], "fill": False}, prompt_len=2, max_tokens=1)
    fits = donor(e, "d1", 176)
    e.run()
    assert "error" not in e.answer(fits)


def test_the_room_is_counted_in_the_workers_pages(engine):
    """Layers of a group may differ; the engine tells its scheduler of one of them."""
    page = FULL.page_size_bytes
    workers = Workers()
    e = engine(workers=workers, extra={"donor_bank_gib": 20 * page / 2**30})
    donor(e, "d0", 64)
    e.run()
    donors = e.connector._scheduler_half._donors
    assert donors.used_bytes == 4 * page
    workers.layers = GroupLayers((3 * page,), (("1",),))
    e.add(decodebench={"fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    assert donors.used_bytes == 12 * page
    refused = donor(e, "d1", 48)
    e.run()
    assert f"needs {9 * page:,} bytes" in e.answer(refused)["error"]
    e.add(decodebench={"forget": ["d0"], "fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    assert donors.used_bytes == 0


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "error"), [(100, 2, "max_tokens 1"), (100, 1, "exists already")]
)
def test_a_donor_that_cannot_be_kept_is_prefilled_and_told_why(engine, prompt_len, max_tokens, error):
    e = engine()
    donor(e, "d0")
    e.run()
    request = donor(e, "d0" if max_tokens == 1 else "d1", prompt_len, max_tokens=max_tokens)
    e.run()
    assert error in e.answer(request)["error"]
    assert "donor" not in e.answer(request)
    assert len(e.workers.held) == 1


@IN_FLIGHT
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_aborted_donor_is_not_kept_and_never_named_as_sent(engine, steps, in_flight):
    workers = Workers(delay=2)
    e = engine(in_flight=in_flight, workers=workers, max_num_batched_tokens=64)
    request = donor(e, prompt_len=1000)
    waiting = e.add(decodebench={"donors": ["d0"]}, prompt_len=201, max_tokens=2)
    for _ in range(steps):
        e.step()
    e.abort(request)
    e.run()
    assert workers.sent == []
    assert "is not held here" in e.answer(waiting)["error"]
    assert free_blocks(e) == NO_BLOCKS_HELD


@IN_FLIGHT
def test_a_donor_forgotten_while_it_is_copied_is_dropped_once_it_is(engine, in_flight):
    workers = Workers(delay=5)
    e = engine(in_flight=in_flight, workers=workers)
    request = donor(e)
    e.run(until=lambda: request in e.responses)
    e.add(decodebench={"forget": ["d0"], "fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    e.add(decodebench={"fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    assert workers.held == {}
    assert e.connector._scheduler_half._donors.used_bytes == 0


def test_a_copy_that_fails_is_told_to_the_fills_that_name_the_donor(engine):
    e = engine(workers=Workers(keep_error="out of host memory"))
    request = donor(e)
    e.run()
    late = e.add(decodebench={"donors": ["d0"]}, prompt_len=100, max_tokens=2)
    e.run()
    assert "out of host memory" in e.answer(late)["error"]
    assert e.workers.sent == [request]
    assert free_blocks(e) == NO_BLOCKS_HELD


def test_a_donor_is_prefilled_once_the_pool_has_room_for_it(engine):
    e = engine(num_blocks=16)
    holder = e.add(prompt_len=150, max_tokens=30)
    e.run(until=lambda: len(e.outputs.get(holder, ())) > 2)
    request = donor(e, prompt_len=120)
    e.run()
    assert e.answer(request)["donor"]["tokens"] == 120
    assert free_blocks(e) == 15


@pytest.mark.parametrize("count", [1, 2])
def test_a_donor_is_held_when_every_worker_has_reported_it(engine, count):
    e = engine(workers=Workers(count=1))
    e.connector._scheduler_half._donors._num_workers = count
    donor(e)
    e.run()
    assert bool(e.connector._scheduler_half._donors.describe()["donors"]) == (count == 1)


def test_the_bank_is_described_with_the_engine(engine):
    e = engine(groups=GROUPS, extra={"donor_bank_gib": 1})
    donor(e)
    e.run()
    request = e.add(decodebench={"info": True, "fill": False}, prompt_len=4, max_tokens=1)
    e.run()
    bank = e.answer(request)["info"]["donor_bank"]
    assert bank["limit_bytes"] == 1 << 30
    assert bank["min_tokens"] == 63
    assert bank["donors"] == {"d0": 200}
    assert bank["used_bytes"] == sum(
        pages * size for pages, size in zip([13, 5, 1], bank["page_bytes"], strict=True)
    )


@IN_FLIGHT
def test_churn_of_donors_and_fills_leaves_no_state(engine, in_flight):
    import random

    draw = random.Random(in_flight)
    workers = Workers(delay=1)
    e = engine(
        groups=(FULL, SLIDING), num_blocks=600, in_flight=in_flight, workers=workers, max_num_seqs=16,
        prefix_caching=True, extra={"donor_bank_gib": 200 * FULL.page_size_bytes / 2**30},
    )  # fmt: skip
    alive: list[str] = []
    for turn in range(250):
        name = f"d{draw.randrange(6)}"
        kind = draw.randrange(4)
        if kind == 0:
            alive.append(donor(e, name, draw.randrange(1, 300), max_tokens=draw.choice([1, 1, 1, 2])))
        elif kind == 1:
            alive += e.cohort(f"c{turn}", size=2, prompt_len=90, max_tokens=3, asked={"donors": [name]})
        elif kind == 2:
            alive.append(
                e.add(
                    decodebench={"donors": [name], "seed": turn, "audit": True}, prompt_len=150, max_tokens=3
                )
            )
        else:
            alive.append(e.add(decodebench={"forget": [name], "fill": False}, prompt_len=9, max_tokens=1))
        for _ in range(draw.randrange(4)):
            e.step()
        if draw.random() < 0.4:
            e.abort(alive.pop(draw.randrange(len(alive))))
    e.run(3000)
    forget = [f"d{number}" for number in range(6)]
    e.add(decodebench={"forget": forget, "fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    e.add(decodebench={"fill": False}, prompt_len=2, max_tokens=1)
    e.run()
    half = e.connector._scheduler_half
    donors = half._donors
    assert (donors._donors, donors._of_request, donors._copying, donors.used_bytes) == ({}, {}, {}, 0)
    assert (half._copied, half._errors, half._requests, half._audits) == ({}, {}, {}, {})
    assert workers.held == {}
    assert len(workers.sent) == len(set(workers.sent))
    assert free_blocks(e) == 599
