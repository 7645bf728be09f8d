"""Does the server still live? A dead engine ends the run, a failed request only its repeat.

vLLM's server process outlives its engine by a moment in which it answers every request with an error, so its exit alone
would come too late. Its `/health` fails as soon as the engine is dead.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from decodebench.errors import EngineFailed

LIMIT_S = 30.0
"""How long a server that is not healthy may take to end, or to recover."""
POLL_S = 0.2


def require_alive(base_url: str, check: Callable[[], None]) -> None:
    """Return if the server is healthy. `check` raises `EngineFailed`, with the cause, once its process has ended.

    Raises `EngineFailed` too when it neither ends nor recovers within `LIMIT_S`.
    """
    deadline = time.monotonic() + LIMIT_S
    while not _is_healthy(base_url):
        check()
        if time.monotonic() > deadline:
            raise EngineFailed(f"the server at {base_url} is not healthy any more")
        time.sleep(POLL_S)


def _is_healthy(base_url: str) -> bool:
    try:
        with urllib.request.urlopen(base_url + "/health", timeout=LIMIT_S) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
