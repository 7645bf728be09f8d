"""One server at a time: cases that share one run beside each other, and it is stopped after the last of them."""

from pathlib import Path

import pytest

from tests.e2e.servers import Running, ServerKind, Servers

HERE = Path(__file__).parent
SERVERS = pytest.StashKey[Servers]()


def kind_of(item: pytest.Item | None) -> ServerKind | None:
    """The server a case runs on; None for the cases that start their own."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    return item.callspec.params.get("server")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the cases of one server together, at the place of its first one."""
    ours = [at for at, item in enumerate(items) if HERE in item.path.parents]
    first: dict[str, int] = {}
    for at in ours:
        first.setdefault(str(kind_of(items[at])), at)
    ordered = sorted((items[at] for at in ours), key=lambda item: first[str(kind_of(item))])
    for at, item in zip(ours, ordered, strict=True):
        items[at] = item


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    servers = Servers(tmp_path_factory.mktemp("servers"))
    request.session.stash[SERVERS] = servers
    yield servers
    servers.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> Running:
    return servers.get(request.param)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    servers = item.session.stash.get(SERVERS, None)
    if servers is not None and kind_of(nextitem) != kind_of(item):
        servers.stop()
