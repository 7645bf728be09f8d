"""A failed request asks whether the server lives: only a dead one ends the run."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from decodebench.bench import alive
from decodebench.errors import EngineFailed


@pytest.fixture
def server():
    """A server whose `/health` says the statuses of the list one after the other, the last one for ever."""
    statuses = [200]

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Health)
    Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", statuses
    http.shutdown()
    http.server_close()


def dead() -> None:
    raise EngineFailed("the vLLM server ended with exit code 1", "the cause")


def test_a_healthy_server_is_not_asked_twice(server):
    alive.require_alive(server[0], dead)


def test_a_dead_one_ends_the_run_with_its_cause(server):
    server[1][:] = [503]
    with pytest.raises(EngineFailed) as failed:
        alive.require_alive(server[0], dead)
    assert failed.value.cause == "the cause"


def test_one_that_recovers_goes_on(server):
    server[1][:] = [503, 500, 200]
    alive.require_alive(server[0], lambda: None)


def test_one_that_neither_ends_nor_recovers_is_given_up(server, monkeypatch):
    monkeypatch.setattr(alive, "LIMIT_S", 0.5)
    server[1][:] = [503]
    with pytest.raises(EngineFailed, match="not healthy any more"):
        alive.require_alive(server[0], lambda: None)


def test_no_server_at_all_is_dead():
    with pytest.raises(EngineFailed, match="exit code 1"):
        alive.require_alive("http://127.0.0.1:9", dead)
