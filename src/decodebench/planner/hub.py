"""The config.json of a model on the Hugging Face hub: from the local cache, else fetched (a few kilobytes)."""

import json
import os
from pathlib import Path
from typing import Any

from decodebench.errors import UserError

TIMEOUT_S = 10
MAX_BYTES = 4 << 20


def fetch_config(model: str) -> Any:
    """The parsed config.json of `owner/name`; HF_HOME, HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN are honoured."""
    cached = _cached(model)
    text = cached.read_text(encoding="utf-8") if cached is not None else _download(model)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"MODEL {model}: its config.json is not JSON: {error}") from None


def _cached(model: str) -> Path | None:
    """The newest snapshot in the cache of huggingface_hub."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = hub.glob(f"models--{model.replace('/', '--')}/snapshots/*/config.json")
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def _download(model: str) -> str:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise _unreachable(model, "it is not in the local cache and HF_HUB_OFFLINE is set")
    from urllib.error import HTTPError
    from urllib.parse import quote
    from urllib.request import Request, urlopen

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    request = Request(f"{endpoint}/{quote(model)}/resolve/main/config.json")
    if token := os.environ.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read(MAX_BYTES)
    except HTTPError as error:
        why = {
            401: "no access (set HF_TOKEN)",
            403: "no access (set HF_TOKEN)",
            404: "no such model or no config.json",
        }
        raise _unreachable(model, why.get(error.code, f"the hub answered {error.code}")) from None
    except (OSError, ValueError) as error:
        raise _unreachable(model, f"the hub cannot be reached ({error})") from None
    return content.decode("utf-8", errors="replace")


def _unreachable(model: str, why: str) -> UserError:
    return UserError(f"MODEL {model}: {why}", "give the model's config.json, or its directory")
