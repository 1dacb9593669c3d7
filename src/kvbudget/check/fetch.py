"""One bounded GET: an engine's metrics page, or a question to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT_S = 10.0
"""Of a connection, and of a silence while reading."""

DEADLINE_S = 30.0
"""Of one answer in all."""

MAX_ANSWER = 16 << 20
_CHUNK = 1 << 16

NOT_THERE = {
    "metrics": "SGLang needs --enable-metrics, llama-server --metrics; vLLM's page is /metrics on the API's port",
    "prometheus": "give the server's root, such as http://127.0.0.1:9090",
}


def get(url: str, *, what: str = "metrics") -> str:
    """Return the text at an address.

    Args:
        url: http or https; a proxy of the environment is used as usual.
        what: "metrics" or "prometheus", for the advice in messages.

    Raises:
        InputError: It is no such address.
        AccessError: Nobody answers, or with an error, or with too much.
    """
    import time  # noqa: PLC0415
    from http.client import HTTPException  # noqa: PLC0415 - few commands ask a server
    from urllib.error import HTTPError, URLError  # noqa: PLC0415
    from urllib.request import Request, urlopen  # noqa: PLC0415

    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{shown(url)} is no http address; give for example http://127.0.0.1:8000/metrics.")
    ends = time.monotonic() + DEADLINE_S
    name = shown(_without_secrets(url))
    try:
        request = Request(url, headers={"Accept": "text/plain, application/json", "User-Agent": "kvbudget"})  # noqa: S310
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the scheme was checked
            return _read(answer, ends, name)
    except HTTPError as error:
        error.close()
        hint = f": {NOT_THERE[what]}" if error.code == 404 else ""  # noqa: PLR2004 - not found
        said = "needs a token or a password" if error.code in (401, 403) else f"answered {error.code}"
        raise AccessError(f"{name} {said}{hint}.") from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise AccessError(
            f"{name} cannot be reached: {shown(str(reason))}; is the server up, and is this its port?"
        ) from None


def _read(answer: HTTPResponse, ends: float, name: str) -> str:
    import time  # noqa: PLC0415

    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER:
            raise AccessError(f"{name} answered more than {MAX_ANSWER >> 20} MiB; give one engine's address.")
        if time.monotonic() > ends:
            raise AccessError(f"{name} did not finish its answer within {DEADLINE_S:.0f} s; try again.")
    return b"".join(parts).decode("utf-8", "replace")


def _without_secrets(url: str) -> str:
    """Return an address without a user's name, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
