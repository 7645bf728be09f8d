"""When nothing of a stored run is left to measure, and what a run that goes on keeps of its host."""

from pathlib import Path

import pytest

from decodebench.bench.host import with_noise_of
from decodebench.bench.resume import Earlier
from decodebench.bench.settings import Settings
from decodebench.results.fidelity import PointFidelity
from decodebench.results.provenance import Host
from decodebench.results.schema import RunStatus
from decodebench.results.status import Status
from decodebench.results.store import Store
from tests.results.documents import document, other_point, valid_point


def settings(**changes) -> Settings:
    return Settings(**{"batch_sizes": (2,), "context_lens": (1000,), "max_repeats": 5} | changes)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "run")


def complete(store: Store, asked: Settings, *more, point=None, **changes) -> bool:
    point = point or valid_point(0, 2, store)  # five repeats, one launch
    return Earlier(document(store.directory, point, *more, **changes), store, 0).is_complete(asked)


@pytest.mark.parametrize(
    ("asked", "is_complete"),
    [
        (settings(), True),
        (settings(precision=1e-6), True),  # missed, but it has all the repeats it may have
        (settings(precision=1e-6, max_repeats=8), False),
        (settings(launches=2), False),
        (settings(fidelity=True), False),
    ],
)
def test_a_run_is_complete_when_no_point_may_have_more_repeats(store, asked, is_complete):
    assert complete(store, asked) is is_complete


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.VALID])
def test_a_point_that_has_no_figures_is_left_to_measure_unless_it_does_not_fit(store, status):
    other = other_point(1, status, "because")
    assert complete(store, settings(), other) is (status is Status.DOES_NOT_FIT)


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.FINISHED])
def test_a_run_that_ended_early_is_not_complete(store, status):
    assert not complete(store, settings(), status=status)


def test_a_run_is_complete_only_with_the_comparison_that_was_asked_for(store):
    asked, point = settings(fidelity=True), valid_point(0, 2, store)
    assert complete(store, asked, point=point, fidelity_reason="no point fits")
    for bounds, enough in (({}, False), ({"low": -0.01, "high": 0.03}, True)):
        found = PointFidelity(fill="donor", launch=0, rounds=5, error=0.01, **bounds)
        assert complete(store, asked, point=point.model_copy(update={"fidelity": found})) is enough


QUIET = Host(cpu="now", noise={"jitter": 0.03, "stolen": 0.001})
BUSY = Host(cpu="now", noise={"jitter": 0.09, "stolen": 0.01})
NOISY = Host(cpu="now", noise={"jitter": 0.02, "stolen": 0.05}, noise_warning="noisy")


@pytest.mark.parametrize("hosts", [(QUIET, BUSY), (BUSY, NOISY), (QUIET, NOISY), (Host(), QUIET)])
def test_a_resumed_run_keeps_the_noisier_of_its_parts(hosts):
    quieter, noisier = hosts
    for before, now in (hosts, hosts[::-1]):
        kept = with_noise_of(now.model_copy(update={"cpu": "mine"}), before)
        assert (kept.noise, kept.noise_warning) == (noisier.noise, noisier.noise_warning)
        assert kept.cpu == "mine"
    assert quieter.noise != noisier.noise
