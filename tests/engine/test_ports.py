"""Ports are checked before anything is started."""

import socket

import pytest

from decodebench.engine.ports import claim_port
from decodebench.errors import UserError


def test_zero_gives_a_port_that_can_be_bound():
    with socket.create_server(("127.0.0.1", claim_port(0))) as server:
        assert server.getsockname()[1] > 0


def test_a_port_that_somebody_listens_on_is_refused_with_its_number():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=str(port)):
            claim_port(port)
    assert claim_port(port) == port


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(UserError, match="1 to 65535"):
        claim_port(port)
