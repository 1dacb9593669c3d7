"""One bounded GET: an engine's metrics page, or a question to Prometheus."""

from __future__ import annotations

import codecs
import json
import os
import time
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.error import HTTPError

TIMEOUT_S = 10.0
"""Of a connection, and of a silence while reading."""

DEADLINE_S = 30.0
"""Of one answer in all."""

MAX_ANSWER = 16 << 20
"""Bytes of a page, packed or not; an engine's has some 70,000, one of many adapters a few million."""

_CHUNK = 1 << 16

TOKEN = "KVBUDGET_METRICS_TOKEN"  # noqa: S105 - the name of a variable
"""The environment's variable with a bearer token for metrics and Prometheus."""

EXAMPLES = {"metrics": "http://127.0.0.1:8000/metrics", "prometheus": "http://127.0.0.1:9090"}

_NOT_THERE = {
    "metrics": "SGLang needs --enable-metrics, llama-server --metrics; vLLM's page is /metrics on the API's port",
    "prometheus": f"give the server's root, such as {EXAMPLES['prometheus']}",
}


def get(url: str, *, what: str = "metrics") -> str:
    """Return the text at an address.

    A user's name and password in the address, or else the token of the environment, go with the question, and to no
    other address that it is led on to.

    Args:
        url: http or https; a proxy of the environment is used as usual.
        what: "metrics" or "prometheus", for the advice in messages.

    Raises:
        InputError: It is no such address.
        AccessError: Nobody answers, or with an error, or with too much.
    """
    from threading import Thread  # noqa: PLC0415 - few commands ask a server

    parts = _split(url, what)
    name = public(url)
    found: list[str | Exception] = []

    def ask() -> None:
        try:
            found.append(_ask(parts, name, what))
        except Exception as error:  # noqa: BLE001 - it is raised below
            found.append(error)

    asking = Thread(target=ask, daemon=True)  # headers may drip for hours, which no time-out of a socket ends
    asking.start()
    asking.join(DEADLINE_S)
    if not found:
        raise _too_slow(name)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _ask(parts: SplitResult, name: str, what: str) -> str:
    from http.client import HTTPException  # noqa: PLC0415
    from urllib.error import HTTPError, URLError  # noqa: PLC0415
    from urllib.request import Request, urlopen  # noqa: PLC0415

    ends = time.monotonic() + DEADLINE_S
    try:
        request = Request(  # noqa: S310 - the scheme was checked
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            headers={"Accept": "text/plain, application/json", "User-Agent": "kvbudget"},
        )
        if credentials := _credentials(parts):
            request.add_unredirected_header("Authorization", credentials)
        with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return text_of(_read(answer, ends, name), name)
    except AccessError:  # an OSError, like those below
        raise
    except HTTPError as error:
        with error:
            raise AccessError(f"{name} {_refusal(error, ends, what)}.") from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise AccessError(f"{name} cannot be reached: {shown(str(reason))}; {_advice(reason)}") from None


def _too_slow(name: str) -> AccessError:
    return AccessError(f"{name} did not finish its answer within {DEADLINE_S:g} s; try again.")


def text_of(content: bytes, name: str) -> str:
    """Return the text of a page: packed with gzip or not, UTF-8 or, as some shells save it, UTF-16.

    Raises:
        AccessError: It is damaged, or longer than `MAX_ANSWER`.
    """
    if content.startswith(b"\x1f\x8b"):
        unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            content = unpacking.decompress(content, MAX_ANSWER + 1)
        except zlib.error as error:
            raise AccessError(f"{name} is packed and damaged: {error}; fetch it again.") from None
    if len(content) > MAX_ANSWER:
        raise AccessError(f"{name} has more than {MAX_ANSWER >> 20} MiB; give the page of one engine.")
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8-sig", "replace")


def public(url: str) -> str:
    """Return an address for people: without a user's name, password and query."""
    parts = urlsplit(url)
    return shown(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def _split(url: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname
        _ = parts.port
    except ValueError:
        known = None
    if not known:
        raise InputError(f"{shown(url.rpartition('@')[2])} is no http address; give for example {EXAMPLES[what]}.")
    return parts


def _credentials(parts: SplitResult) -> str:
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return f"Basic {b64encode(pair.encode()).decode()}"
    token = os.environ.get(TOKEN, "").strip()
    return f"Bearer {token}" if token.isascii() and token.isprintable() and token else ""


def _read(answer: HTTPResponse, ends: float, name: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER:
            raise AccessError(f"{name} answered more than {MAX_ANSWER >> 20} MiB; give one engine's address.")
        if time.monotonic() > ends:
            raise _too_slow(name)
    if answer.length:
        raise AccessError(f"{name} broke off {answer.length:,} bytes before the end of its answer; try again.")
    return b"".join(parts)


def _refusal(error: HTTPError, ends: float, what: str) -> str:
    """Return what an answer with an error says, and what to do."""
    said = f"answered {error.code}"
    if error.code in (401, 403):
        return f"needs a token or a password ({error.code}): set {TOKEN}, or write http://user:password@host"
    if error.code == 404:  # noqa: PLR2004 - not found
        return f"{said}: {_NOT_THERE[what]}"
    if error.code < 400:  # noqa: PLR2004 - a redirection that was not followed
        return f"{said}, and leads to no page; give the address of the page itself"
    reason = _reason(error, ends)
    return f"{said}: {reason}" if reason else f"{said}; see that server's own log"


def _reason(error: HTTPError, ends: float) -> str:
    """Return why Prometheus says that it refused a question, "" where it does not."""
    try:
        document = json.loads(_read(error, ends, ""))  # type: ignore[arg-type] # it reads like a response
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""
    reason = document.get("error") if isinstance(document, dict) else None
    return shown(reason, 200).rstrip(".") if isinstance(reason, str) else ""


def _advice(reason: object) -> str:
    """Return what to do where nobody answered."""
    import ssl  # noqa: PLC0415 - urllib has it by now

    if isinstance(reason, ssl.SSLError):
        return "is it http:// and not https://, or must SSL_CERT_FILE name who signed its certificate?"
    return "is the server up, and is this its port?"
