"""Which TCP port the server gets, decided before anything slow is started."""

import socket

from decodebench.engine.loopback import LOOPBACK
from decodebench.errors import UserError


def free_port() -> int:
    """A port of the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def claim_port(port: int) -> int:
    """`port` if it can be bound (0: a free one), else a `UserError`.

    NOTE: the port is let go again; whoever takes it before the server does is found in the server's log.
    """
    if port == 0:
        return free_port()
    if not 0 < port < 65536:
        raise UserError(f"--port {port}: not a port", "write 1 to 65535, or 0 for a free one")
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as vLLM does; a listener still conflicts
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise UserError(
                f"--port {port}: cannot be bound on {LOOPBACK}: {error.strerror}",
                "stop what listens there, or leave --port out to get a free one",
            ) from None
    return port
