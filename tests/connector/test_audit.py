"""The audit of fills: what it proves in a worker, and how its findings reach the client."""

import pytest

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.findings import Findings
from decodebench.connector.layout import group_shape
from decodebench.connector.metadata import AuditReport, DecodeBenchConnectorMetadata, DonorCopy, RequestFill
from decodebench.kv.blocks import select
from decodebench.kv.donors import DonorPages, plan_copies
from tests.connector.engine import FULL, SLIDING, Workers, state_spec
from tests.connector.test_worker import Pool

SPECS = (FULL, SLIDING, state_spec())
TABLES = [[1, 2, 3], [0, 4, 5], [6]]


def audited(pool, sources=False, tables=TABLES, total=40):
    shapes = [group_shape(spec, at) for at, spec in enumerate(pool.specs)]
    writes = [select(shape, ids, 0, total) for shape, ids in zip(shapes, tables, strict=True)]
    taken = ()
    if sources:
        held = [DonorPages(1, 40, 0, 3), DonorPages(1, 40, 0, 3), DonorPages(1, 40, 0, 1)]
        planned = [
            plan_copies(shape, ids, each, total, [donor], 0)
            for shape, ids, each, donor in zip(shapes, tables, writes, held, strict=True)
        ]
        writes, taken = zip(*planned, strict=True)
    fill = RequestFill(tuple(writes), total, tuple(taken), audit=True)
    pool.worker.start(DecodeBenchConnectorMetadata(0, {"r": fill}))
    return pool.wait()


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def pool(request):
    return lambda **kwargs: Pool(
        SPECS, config=ConnectorConfig(fill_std=0.5, async_fill=request.param, **kwargs)
    )


@pytest.mark.parametrize("sources", [False, True], ids=["numbers", "donor"])
def test_a_fill_that_wrote_what_it_should_is_proven_page_by_page(pool, sources):
    p = pool()
    if sources:
        copy = DonorCopy(1, "d", ([7, 8, 9], [7, 8, 9], [10]))
        p.worker.start(DecodeBenchConnectorMetadata(0, copies=(copy,)))
    report = audited(p, sources)
    assert report.pages == (3, 2, 1)
    assert report.audit.checked == {"r": (3, 2, 1)}
    assert report.audit.wrong == {"r": (0, 0, 0)}
    assert (report.audit.unowned, report.audit.changed) == ((12 - 6) * 1, 0)
    assert report.audit.seconds > 0


def test_a_byte_written_wrong_and_a_byte_written_elsewhere_are_both_found(pool):
    p = pool()
    content, write = p.worker._content, p.worker._content.write

    def spoil(pages, writes):
        p.raw[4, 100] += 1
        p.raw[9, 7] = 3
        return write(pages, writes)

    content.write = spoil  # also of later groups, so block 4 of the second group is spoilt after its write
    report = audited(p)
    assert report.audit.wrong == {"r": (0, 1, 0)}
    assert report.audit.changed == 1


def test_nothing_is_audited_unless_asked(pool):
    assert pool().fill(TABLES, local=0, total=40).audit is None


def test_findings_add_up_over_workers_and_members():
    one = AuditReport({"a": (2, 1), "b": (1, 1)}, {"a": (0, 0), "b": (1, 0)}, 10, 0, 0.5)
    found, other = Findings(), Findings()
    for _ in range(2):
        found.add(one, "a", disturbed=False)
        other.add(one, "b", disturbed=False)
    assert found.error is None
    assert "1 of 4" not in other.error
    assert "2 of 4 pages do not hold what was written" in other.error
    found.merge(other)
    assert found.describe() == {
        "pages": [6, 4],
        "mismatches": 2,
        "unowned_pages": 10,
        "unowned_changed": 0,
        "seconds": 1.0,
    }


class Auditing(Workers):
    """Workers whose audits find `wrong` pages in the first group and `changed` pages elsewhere."""

    wrong = changed = 0

    def answer(self, meta):
        output = super().answer(meta)
        jobs = tuple(self._audited(job, meta) for job in output.kv_connector_worker_meta.jobs)
        output.kv_connector_worker_meta = type(output.kv_connector_worker_meta)(meta.step, jobs)
        return output

    def _audited(self, job, meta):
        checked = {
            name: tuple(writes.num_blocks for writes in fill.writes)
            for name, fill in self.fills.items()
            if fill.audit
        }
        if not checked:
            return job
        wrong = {name: (self.wrong, *[0] * (len(pages) - 1)) for name, pages in checked.items()}
        audit = AuditReport(checked, wrong, 100, self.changed, 0.1)
        return type(job)(job.step, job.rank, job.pages, job.error, audit)


@pytest.mark.parametrize("asked", [{"audit": True}, {}], ids=["by the request", "by the server"])
def test_the_proof_is_in_the_cohorts_answer(engine, asked):
    e = engine(groups=(FULL, SLIDING), workers=Auditing(), extra={} if asked else {"audit": True})
    members = e.cohort(size=2, prompt_len=201, max_tokens=3, asked=asked)
    e.run()
    audit = e.answer(members[0])["cohort"]["audit"]
    assert audit == {
        "pages": [26, 10], "mismatches": 0, "unowned_pages": 100, "unowned_changed": 0, "seconds": audit["seconds"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "changed", "reason"), [(1, 0, "2 of 36 pages do not"), (0, 3, "3 of 100 pages out")]
)
def test_a_mismatch_breaks_the_cohort_and_is_told_to_every_member(engine, wrong, changed, reason):
    workers = Auditing()
    workers.wrong, workers.changed = wrong, changed
    e = engine(groups=(FULL, SLIDING), workers=workers)
    members = e.cohort(size=2, prompt_len=201, max_tokens=3, asked={"audit": True})
    e.run()
    for member in members:
        assert reason.replace("2 of 36", "1 of 18") in e.answer(member)["error"]
        assert len(e.outputs[member]) == 3


def test_what_changed_outside_is_not_judged_while_others_run(engine):
    workers = Auditing()
    workers.changed = 5
    e = engine(workers=workers)
    other = e.add(prompt_len=50, max_tokens=40)
    e.run(until=lambda: len(e.outputs.get(other, ())) > 2)
    workers.delay = 2
    request = e.add(decodebench={"audit": True}, prompt_len=100, max_tokens=3)
    e.run()
    assert e.answer(request)["audit"]["unowned_changed"] is None
    assert "error" not in e.answer(request)


@pytest.mark.parametrize("max_tokens", [1, 2])
@pytest.mark.parametrize("async_fill", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("in_flight", [1, 2])
def test_the_proof_is_in_the_answer_of_a_request_however_short(engine, max_tokens, async_fill, in_flight):
    e = engine(workers=Auditing(delay=2), extra={"async_fill": async_fill}, in_flight=in_flight)
    request = e.add(decodebench={"audit": True}, prompt_len=201, max_tokens=max_tokens)
    e.run()
    assert e.answer(request)["audit"]["pages"] == [13]
    assert len(e.outputs[request]) == max_tokens


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_proof_that_comes_after_its_request_was_aborted_is_not_kept(engine, in_flight):
    e = engine(workers=Auditing(delay=3), in_flight=in_flight)
    request = e.add(decodebench={"audit": True}, prompt_len=201, max_tokens=5)
    e.step()
    e.abort(request)
    e.run()
    assert e.workers.fills
    assert e.connector._scheduler_half._audits == {}
    assert not e.scheduler.requests
