"""What the environment says about the hub, in the variables of `huggingface_hub` (2.4, constants.py).

They are read here again, at each call, because an answer that lies in a cache must not wait for that package's import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from kvbudget.errors import InputError

DEFAULT_ENDPOINT = "https://huggingface.co"

_TRUE = ("1", "ON", "YES", "TRUE")


class Settings(NamedTuple):
    """Where the hub and its caches are.

    Attributes:
        endpoint: The address of the hub, without a slash at its end (``HF_ENDPOINT``).
        host: Its host, for messages.
        snapshots: The cache of downloaded files that `huggingface_hub` keeps (``HF_HUB_CACHE``, ``HF_HOME``).
        headers: The cache of headers that this package keeps, under ``HF_HOME``.
        offline: Whether nothing may be asked (``HF_HUB_OFFLINE``, ``TRANSFORMERS_OFFLINE``).
    """

    endpoint: str
    host: str
    snapshots: Path
    headers: Path
    offline: bool


def read_settings() -> Settings:
    """Return the settings of this moment.

    Raises:
        InputError: ``HF_ENDPOINT`` is no address.
    """
    env = os.environ
    endpoint = (env.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    home = _path(env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))  # noqa: PTH118
    snapshots = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    offline = env.get("HF_HUB_OFFLINE") or env.get("TRANSFORMERS_OFFLINE") or ""
    return Settings(
        endpoint=endpoint,
        host=_host(endpoint),
        snapshots=_path(snapshots) if snapshots else home / "hub",
        headers=home / "kvbudget",
        offline=offline.upper() in _TRUE,
    )


def _path(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))  # noqa: PTH111 - an unknown user must not raise


def _host(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or not endpoint.isprintable():
        raise InputError(f"HF_ENDPOINT {endpoint[:80]!r} is no address; expected one such as {DEFAULT_ENDPOINT}.")
    return f"{parts.hostname}:{port}" if port else parts.hostname
