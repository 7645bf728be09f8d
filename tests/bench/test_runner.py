"""How a run ends whose server does not come up: what its document says, and what a reader is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest

from decodebench.bench.grid import grid
from decodebench.bench.runner import Runner
from decodebench.bench.running import Running
from decodebench.bench.settings import Settings
from decodebench.errors import EngineFailed
from decodebench.report.progress import Progress
from decodebench.report.terminal import console_for, print_report
from decodebench.results.schema import RunDocument, RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store
from tests.results.documents import document

SETTINGS = Settings(batch_sizes=(1, 8), context_lens=(500, 1000))
CAUSE = "           ^^^^^^^^^^~~~\nValueError: no memory for the cache\nit needs 4 GiB,\n there are 2"
FAILED = EngineFailed("the vLLM server ended with exit code 1", CAUSE, Path("server.log"))


def failing(error: BaseException):
    @contextmanager
    def launch(progress: Progress) -> Iterator[Running]:
        raise error
        yield

    return launch


def run_that_fails(directory: Path, error: BaseException) -> RunDocument:
    store = Store.create(directory)
    begun = document(directory, status=RunStatus.RUNNING, finished=None, engine=None)
    runner = Runner(
        SETTINGS,
        grid(SETTINGS.batch_sizes, SETTINGS.context_lens),
        store,
        begun,
        failing(error),
        Progress(StringIO()),
        lambda line: None,
        lambda state: None,
    )
    with pytest.raises(type(error)):
        runner.run()
    assert store.load() == runner.document
    return runner.document


def shown(run: RunDocument, *, with_cause: bool) -> str:
    stream = StringIO()
    print_report(run, console_for(stream), with_cause=with_cause)
    return stream.getvalue()


def test_an_engine_that_fails_at_the_start_is_told_in_a_word_at_every_point_and_its_cause_once(tmp_path):
    run = run_that_fails(tmp_path / "run", FAILED)
    assert {(point.status, point.reason) for point in run.points} == {(Status.FAILED, FAILED.what)}
    assert len(run.points) == 4
    for text in (shown(run, with_cause=False) + str(FAILED), shown(run, with_cause=True)):
        assert text.count("ValueError: no memory for the cache\n  it needs 4 GiB,\n") == 1
        assert text.count("ValueError") == 1
        assert "^^" not in text


def test_the_cause_begins_with_the_exceptions_own_line(tmp_path):
    run = run_that_fails(tmp_path / "run", FAILED)
    assert run.cause == FAILED.cause
    assert run.cause.startswith("ValueError: no memory")


def test_an_interrupt_before_the_server_answers_leaves_points_that_were_not_run(tmp_path):
    run = run_that_fails(tmp_path / "run", KeyboardInterrupt())
    assert {point.status for point in run.points} == {Status.NOT_RUN}
    assert run.cause is None
    assert shown(run, with_cause=True).count("The run did not finish: interrupted.") == 1
