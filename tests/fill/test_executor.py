from threading import Event, get_ident

import pytest
import torch

from decodebench.fill import Executor, FillExecutor, ImmediateExecutor


def _wait(executor: Executor, count: int) -> list:
    ended = []
    pause = Event()
    for _ in range(5000):
        ended += executor.finished()
        if len(ended) >= count:
            return ended
        pause.wait(0.002)
    raise AssertionError(f"{len(ended)} of {count} jobs ended")


@pytest.fixture(params=["async", "immediate"])
def executor(request: pytest.FixtureRequest, device: torch.device):
    executor = FillExecutor(device) if request.param == "async" else ImmediateExecutor()
    yield executor
    executor.close(10)


def test_every_job_is_reported_once_in_order(executor: Executor) -> None:
    for key in range(50):
        executor.submit(key, lambda key=key: key * 2)
    assert _wait(executor, 50) == [(key, key * 2) for key in range(50)]
    assert executor.finished() == []


def test_an_exception_is_the_result_of_its_job_only(executor: Executor) -> None:
    def fail() -> int:
        raise ValueError("no such block")

    executor.submit("bad", fail)
    executor.submit("good", lambda: 1)
    (bad, error), good = _wait(executor, 2)
    assert bad == "bad"
    assert isinstance(error, ValueError)
    assert good == ("good", 1)


def test_a_job_runs_beside_its_caller(device: torch.device) -> None:
    executor: FillExecutor[int] = FillExecutor(device)
    go = Event()

    def job() -> int:
        go.wait(10)
        return get_ident()

    executor.submit("a", job)
    assert executor.finished() == []
    go.set()
    assert _wait(executor, 1)[0][1] != get_ident()
    executor.close(10)


def test_an_immediate_job_has_run_when_submit_returns() -> None:
    executor: ImmediateExecutor[int] = ImmediateExecutor()
    executor.submit("a", get_ident)
    assert executor.finished() == [("a", get_ident())]


def test_close_waits_for_jobs_and_leaves_their_reports(device: torch.device) -> None:
    executor: FillExecutor[int] = FillExecutor(device)
    for key in range(20):
        executor.submit(key, lambda: 1)
    executor.close(10)
    assert len(executor.finished()) == 20


def test_close_gives_up_in_time_and_jobs_not_begun_are_reported_as_dropped(device: torch.device) -> None:
    executor: FillExecutor[bool] = FillExecutor(device)
    go = Event()
    executor.submit("slow", lambda: go.wait(10))
    executor.submit("late", lambda: True)
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        executor.close(0.05)
    go.set()
    (_, slow), (_, late) = _wait(executor, 2)
    assert slow is True
    assert isinstance(late, RuntimeError)
    executor.close(10)


def test_a_job_sees_what_the_callers_stream_held_at_submit(device: torch.device) -> None:
    """The engine zeroes blocks on its stream first; on the CPU there is one order anyway."""
    executor: FillExecutor[torch.Tensor] = FillExecutor(device)
    target = torch.ones(1 << 22, device=device)
    for _ in range(50):
        target.mul_(1.01)
    target.zero_()
    executor.submit("fill", lambda: target[: 1 << 21].fill_(3.0))
    _wait(executor, 1)
    assert float(target[0]) == 3.0
    assert float(target[-1]) == 0.0
    executor.close(10)


def test_a_device_without_asynchronous_fill_is_refused_with_the_key_to_set() -> None:
    with pytest.raises(ValueError, match="async_fill"):
        FillExecutor(torch.device("meta"))
