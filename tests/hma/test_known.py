"""The table of connectors against the source of the vLLM that is installed."""

import pytest

from decodebench.hma.config import read_config
from decodebench.hma.facts import ClassMissing, ConnectorClass, Unknown
from decodebench.hma.known import known_names, look_up_known, supporting_names
from decodebench.hma.lookup import look_up
from decodebench.hma.source import read_class
from decodebench.hma.version import NEWEST, OLDEST, parse_version
from decodebench.hma.vllm_source import installed_version, registered_connectors

INSTALLED = installed_version()
needs_vllm = pytest.mark.skipif(INSTALLED is None, reason="vLLM is not installed")
EVERY_VERSION = [(0, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]


@needs_vllm
def test_the_table_has_exactly_the_names_that_the_installed_vllm_registers() -> None:
    assert INSTALLED is not None
    assert set(known_names(parse_version(INSTALLED))) == set(registered_connectors())


@needs_vllm
@pytest.mark.parametrize("name", sorted(registered_connectors()))
def test_the_table_says_what_the_installed_source_says(name: str) -> None:
    assert INSTALLED is not None
    known = look_up_known(name, parse_version(INSTALLED))
    read = read_class(*registered_connectors()[name])
    assert isinstance(known, ConnectorClass)
    if isinstance(
        read, Unknown
    ):  # the class is chosen at run time; then vLLM's own one is what the table holds
        module, _ = registered_connectors()[name]
        read = read_class(module, f"{name}Upstream")
    assert isinstance(read, ConnectorClass)
    facts = (known.declares_hma, known.finishes_all_groups, known.is_multi)
    assert facts == (read.declares_hma, read.finishes_all_groups, read.is_multi)


@needs_vllm
@pytest.mark.parametrize("name", sorted(registered_connectors()))
def test_no_registered_connector_is_unknown_where_vllm_is_installed(name: str) -> None:
    assert INSTALLED is not None
    config = read_config({"kv_connector": name, "kv_role": "kv_both"})
    assert isinstance(look_up(config, parse_version(INSTALLED), allow_import=False), ConnectorClass)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_no_name_of_the_table_is_unknown_without_vllm(version: tuple[int, int]) -> None:
    for name in known_names(version):
        assert isinstance(look_up_known(name, version), ConnectorClass)
    assert "MultiConnector" not in supporting_names(version)


def test_a_connector_is_missing_before_it_came_and_after_it_went() -> None:
    with pytest.raises(ClassMissing, match=r"only since 0\.30"):
        look_up_known("HiSparseConnector", (0, 29))
    with pytest.raises(ClassMissing, match=r"only up to 0\.23"):
        look_up_known("P2pNcclConnector", (0, 24))
    assert isinstance(look_up_known("SomebodyElses", (0, 32)), Unknown)
    assert isinstance(look_up_known("NixlConnector", (0, 18)), Unknown)
