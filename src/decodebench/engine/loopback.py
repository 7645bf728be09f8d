"""HTTP to a server on this machine: never through the proxy that `http_proxy` may name."""

import urllib.request
from http.client import HTTPResponse
from typing import cast
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LOCAL_NAMES = (LOOPBACK, "localhost", "::1")


def open_url(request: urllib.request.Request | str, timeout_s: float) -> HTTPResponse:
    """As `urllib.request.urlopen`, but straight to the server if it is on this machine."""
    url = request if isinstance(request, str) else request.full_url
    if urlsplit(url).hostname in _LOCAL_NAMES:
        return cast(HTTPResponse, _DIRECT.open(request, timeout=timeout_s))
    return cast(HTTPResponse, urllib.request.urlopen(request, timeout=timeout_s))
