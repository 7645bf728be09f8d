"""Devices to test on: the CPU, and a GPU where there is one."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """As in an engine: many threads on tiny tensors only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
