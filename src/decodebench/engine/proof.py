"""Prove that the engine runs our connector: one request that only our class can answer.

A connector of the same name is part of vLLM, and a module of the same name may lie on the path; neither the start nor
the fill would show which one was loaded. Ours names its class in the answer.
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from decodebench.engine.command import CONNECTOR_CLASS
from decodebench.engine.loopback import open_url
from decodebench.errors import EngineFailed

_REQUEST_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class LoadedConnector:
    """The connector class that answered."""

    name: str  # its full path
    version: str


def prove_connector(base_url: str, model: str, api_key: str | None = None) -> LoadedConnector:
    """Ask the server which connector it runs; raises `EngineFailed` if it is not ours."""
    answer = _complete(base_url, model, api_key)
    params = answer.get("kv_transfer_params")
    ours = params.get("decodebench") if isinstance(params, dict) else None
    connector = ours.get("info", {}).get("connector") if isinstance(ours, dict) else None
    if not isinstance(connector, dict) or connector.get("class") != CONNECTOR_CLASS:
        found = (
            f"it says {json.dumps(connector or ours or params)}"
            if params
            else "it does not say which one it runs"
        )
        raise EngineFailed(f"the server at {base_url} does not run decodebench's connector: {found}")
    return LoadedConnector(name=str(connector["class"]), version=str(connector.get("version", "")))


def _complete(base_url: str, model: str, api_key: str | None) -> dict[str, Any]:
    body = {
        "model": model,
        "prompt": [0, 1],  # token ids: every vocabulary has these
        "max_tokens": 1,
        "cache_salt": "decodebench-proof",
        "kv_transfer_params": {"decodebench": {"fill": False, "info": True}},
    }
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(base_url + "/v1/completions", json.dumps(body).encode(), headers)
    try:
        with open_url(request, _REQUEST_TIMEOUT_S) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read(2000).decode("utf-8", errors="replace")
        raise EngineFailed(f"the server at {base_url} refused a request (HTTP {error.code})", text) from None
    except (OSError, HTTPException, ValueError) as error:
        raise EngineFailed(f"the server at {base_url} did not answer a request", str(error)) from None
    if not isinstance(answer, dict):
        raise EngineFailed(f"the server at {base_url} answered with something that is no completion")
    return answer
