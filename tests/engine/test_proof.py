"""Only an answer that names our connector class is taken as proof."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from decodebench.engine.command import CONNECTOR_CLASS
from decodebench.engine.proof import prove_connector
from decodebench.errors import EngineFailed


@pytest.fixture
def server():
    """A server that answers every completion with what the test puts into `answer`."""

    class Completions(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.key = self.headers["Authorization"]
            self.send_response(self.server.code)
            self.end_headers()
            self.wfile.write(json.dumps(self.server.answer).encode())

        def log_message(self, *args):
            pass

    httpd = HTTPServer(("127.0.0.1", 0), Completions)
    httpd.code, httpd.answer = 200, {}
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def url(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def answer(name: str) -> dict[str, object]:
    return {"kv_transfer_params": {"decodebench": {"info": {"connector": {"class": name, "version": "9"}}}}}


def test_our_class_is_recognised_and_asked_for_without_a_fill(server):
    server.answer = answer(CONNECTOR_CLASS)
    assert prove_connector(url(server), "m", "SECRET9").version == "9"
    assert server.asked["kv_transfer_params"] == {"decodebench": {"fill": False, "info": True}}
    assert server.asked["cache_salt"]
    assert server.key == "Bearer SECRET9"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kv_transfer_params": None},
        {"kv_transfer_params": {"decodebench": {"error": "x"}}},
        answer("vllm.Other"),
        [],
    ],
)
def test_any_other_answer_is_refused(server, given):
    server.answer = given
    with pytest.raises(EngineFailed):
        prove_connector(url(server), "m")


def test_a_refused_request_passes_the_servers_words_on(server):
    server.code, server.answer = 401, {"error": "Unauthorized"}
    with pytest.raises(EngineFailed, match="HTTP 401") as refused:
        prove_connector(url(server), "m")
    assert "Unauthorized" in refused.value.cause
