"""The doctor looks at the environment the engine would be started in."""

import pytest

from decodebench.engine import doctor
from decodebench.engine.cores import model_threads, usable_cores
from decodebench.engine.distribution import is_cpu_build

cpu_build = pytest.mark.skipif(not is_cpu_build(), reason="OpenMP threads matter on vLLM's CPU build only")


def problems(findings) -> dict[str, str]:
    return {finding.what: finding.fix for finding in findings if finding.problem}


@cpu_build
@pytest.mark.parametrize("threads", ["0x", "4096"])
def test_threads_that_would_take_every_core_are_a_problem(threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert f"OMP_NUM_THREADS={model_threads()}" in problems(doctor._environment())["OMP_NUM_THREADS"]


@cpu_build
def test_threads_that_leave_a_core_or_are_not_set_are_none(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "OMP_NUM_THREADS" not in problems(doctor._environment())
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "OMP_NUM_THREADS" not in problems(doctor._environment())


def test_an_allocator_that_vllm_refuses_with_a_connector_is_a_problem(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "PYTORCH_CUDA_ALLOC_CONF" in problems(doctor._environment())


def test_without_vllm_the_commands_that_install_it_are_the_fix(monkeypatch):
    monkeypatch.setattr(doctor, "has_vllm", lambda: False)
    assert "pip install" in problems(doctor._engine())["vllm"]


def test_at_least_one_core_is_usable():
    assert 1 <= model_threads() <= usable_cores()
