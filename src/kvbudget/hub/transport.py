"""Bytes from the hub, in ranges, with the client of `huggingface_hub`, so proxies, tokens and certificates are its.

Every answer is held against what was asked for: its status, its range, its length. What a server sends beyond that is
cut off. A transfer that breaks is tried once more; then it is an `AccessError` in one sentence.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kvbudget import __version__
from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvbudget.hub.settings import Settings

ATTEMPTS = 2
"""Of each request; the second meets what was a hiccup."""

FIRST_BYTES = 256 << 10
"""Read of a file whose header's length is not known. Of 273 files of nine models up to 671B parameters every header is
shorter; with 100 KB, as others read, a second request is needed for 56 of them."""

SPARE = 1.25
"""How much more than the longest header so far is read of the next file; the files of a checkpoint resemble."""

LEARNED_FROM = 8
"""Headers after which the longest so far says what the rest will need."""

BAD_CHARACTERS = "The token (HF_TOKEN, or that of `hf auth login`) holds characters that no token has."

MAX_HEADERS_BYTES = 512 << 20
"""Of all files of a model; those of the largest known take 12 MiB, and 2,048 files may take `FIRST_BYTES` each."""

WINDOW_BYTES = 32 << 20
"""Asked for at once where a header's length shows only at its end, as with GGUF; the transfer ends with the header."""

_OK, _PARTIAL, _DENIED, _FORBIDDEN, _NOT_FOUND, _TOO_FAR, _TOO_MANY = 200, 206, 401, 403, 404, 416, 429
_ERRORS_FROM, _SERVER_ERRORS_FROM = 400, 500
_UNREACHABLE = ("ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol")
"""What httpx and its successor raise where there is nobody to talk to."""

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_NO_RANGE = re.compile(r"bytes \*/(\d{1,18})")


class MissingError(Exception):
    """The repository is there and the file is not."""


class _BrokenOffError(Exception):
    """A transfer that may work when it is tried again."""


class Transfer:
    """An answer whose body has not been read.

    Attributes:
        chunks: The body from the asked-for byte on.
        total: Bytes of the whole file, None if the server does not say.
        expected: Bytes that the body has from the asked-for byte on, None likewise.
    """

    def __init__(self, chunks: Iterator[bytes], total: int | None, expected: int | None) -> None:
        self.chunks, self.total, self.expected = chunks, total, expected


class Hub:
    """The hub at an address.

    Args:
        settings: Where it is.
        repo: The repository that messages name.
        patience_s: Seconds without a byte after which a connection counts as dead.

    Raises:
        InputError: The token that huggingface_hub finds cannot be one.
    """

    def __init__(self, settings: Settings, repo: str, patience_s: float) -> None:
        from huggingface_hub import constants, errors, get_session, get_token  # noqa: PLC0415 - caches need none of it

        self.settings, self.repo = settings, repo
        self._client: Any = get_session()
        # huggingface_hub's own headers would ask the hub for a list of agents first
        self._headers = {"user-agent": f"kvbudget/{__version__}", "accept-encoding": "identity"}
        try:
            token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        except OSError as error:
            raise AccessError(
                f"The token of `hf auth login` cannot be read ({error.strerror or type(error).__name__}); check "
                "HF_HOME and HF_TOKEN_PATH, or give it in HF_TOKEN."
            ) from None
        except UnicodeDecodeError:
            raise InputError(BAD_CHARACTERS) from None
        if token and not (token.isascii() and token.isprintable()):
            raise InputError(BAD_CHARACTERS)
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._patience_s = patience_s
        # the root of the HTTP client's own errors, whichever client this release of huggingface_hub is built on
        mro = errors.HfHubHTTPError.__mro__
        self._client_error: type[Exception] = next((c for c in mro if c.__name__ == "HTTPError"), OSError)

    def file_url(self, commit: str, name: str) -> str:
        """Return where a file of a commit is."""
        return f"{self.settings.endpoint}/{self.repo}/resolve/{quote(commit, safe='')}/{quote(name)}"

    def get(self, url: str, what: str, most: int) -> bytes:
        """Return a small file whole.

        Args:
            url: Where it is.
            what: What messages call it.
            most: Bytes that it may have; of more only so many and one are returned.

        Raises:
            AccessError: It cannot be had.
            MissingError: The repository has no such file.
        """
        return self._twice(what, lambda: self._body(url, None, most + 1))[0]

    def get_range(self, url: str, what: str, first: int, length: int) -> tuple[bytes, int | None]:
        """Return (bytes from `first` on, fewer than `length` only at the end of the file; bytes of the whole file).

        Raises:
            AccessError: They cannot be had.
            MissingError: The repository has no such file.
        """
        return self._twice(what, lambda: self._body(url, (first, first + length - 1), length))

    def _twice(self, what: str, call: Callable[[], tuple[bytes, int | None]]) -> tuple[bytes, int | None]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return call()
            except _BrokenOffError as error:
                if attempt == ATTEMPTS:
                    raise self._given_up(what, error) from None
        raise AssertionError  # pragma: no cover

    def _given_up(self, what: str, error: _BrokenOffError) -> AccessError:
        return AccessError(
            f"{self.settings.host} {error} at {what}, {ATTEMPTS} times; try again later, or give a folder with the "
            "model."
        )

    def _body(self, url: str, span: tuple[int, int] | None, most: int) -> tuple[bytes, int | None]:
        content = bytearray()
        with self.transfer(url, span) as answer:
            for chunk in answer.chunks:
                content += chunk
                if len(content) >= most:
                    break
            if answer.expected is not None and len(content) < min(most, answer.expected):
                raise _BrokenOffError(f"sent {len(content):,} of {answer.expected:,} bytes")
            return bytes(content[:most]), answer.total

    @contextmanager
    def transfer(self, url: str, span: tuple[int, int] | None) -> Iterator[Transfer]:
        """Begin a transfer; it ends, wherever it is, with the context.

        Args:
            url: Where the file is.
            span: The first and the last byte that are wanted, or None for all.
        """
        headers = dict(self._headers)
        if span is not None:
            headers["range"] = f"bytes={span[0]}-{span[1]}"
        try:
            with self._client.stream(
                "GET", url, headers=headers, timeout=self._patience_s, follow_redirects=True
            ) as response:
                yield self._checked(response, span)
        except self._client_error as error:
            raise self._failure(error) from None
        except OSError as error:
            if isinstance(error, AccessError):
                raise
            raise _BrokenOffError(f"broke off ({type(error).__name__})") from None

    def _failure(self, error: Exception) -> Exception:
        kind = type(error).__name__
        if kind in _UNREACHABLE:
            return AccessError(
                f"{self.settings.host} cannot be reached ({shown(str(error) or kind)}); check the network and "
                "HF_ENDPOINT, or give a folder with the model."
            )
        if "Timeout" in kind:
            return _BrokenOffError(f"sent nothing for {self._patience_s:g} s")
        if "TooManyRedirects" in kind:
            return AccessError(f"{self.settings.host} redirects in a ring; check HF_ENDPOINT.")
        return _BrokenOffError(f"broke off ({kind})")

    def _checked(self, response: Any, span: tuple[int, int] | None) -> Transfer:  # noqa: ANN401 - of either client
        status: int = response.status_code
        if status >= _ERRORS_FROM and not (status == _TOO_FAR and span is not None):
            raise self._refusal(status, response.headers)
        packed = response.headers.get("Content-Encoding", "identity") != "identity"  # though nobody asked for that
        chunks: Iterator[bytes] = response.iter_bytes() if packed and span is None else response.iter_raw()
        length = response.headers.get("Content-Length", "")
        expected = int(length) if re.fullmatch(r"\d{1,18}", length) and not packed else None
        if status == _OK:
            begin = span[0] if span is not None else 0
            rest = None if expected is None else max(0, expected - begin)
            return Transfer(_skipping(chunks, begin), expected, rest)
        said = response.headers.get("Content-Range", "")
        if status == _TOO_FAR and (match := _NO_RANGE.fullmatch(said)):
            return Transfer(iter(()), int(match[1]), 0)
        match = _RANGE.fullmatch(said)
        if status != _PARTIAL or span is None or match is None:
            raise AccessError(
                f"{self.settings.host} answered with status {status} where a file was expected; check HF_ENDPOINT."
            )
        begin, end = int(match[1]), int(match[2])
        if begin != span[0] or end > span[1]:
            raise AccessError(
                f"{self.settings.host} sent bytes {begin:,}-{end:,} where {span[0]:,}-{span[1]:,} were asked for; "
                "check HF_ENDPOINT."
            )
        return Transfer(chunks, None if match[3] == "*" else int(match[3]), end - begin + 1)

    def _refusal(self, status: int, headers: Any) -> Exception:  # noqa: ANN401 - of either client
        code, host, repo = headers.get("X-Error-Code", ""), self.settings.host, shown(self.repo)
        token = "authorization" in self._headers
        if code == "EntryNotFound":
            return MissingError()
        if code == "RevisionNotFound":
            return AccessError(f"{repo} has no such revision on {host}; give a branch, a tag or a commit.")
        if code == "GatedRepo" or (status == _FORBIDDEN and token):
            how = "this token does not have access" if token else "no token is given"
            return AccessError(
                f"{repo} is gated on {host} and {how}; ask for access on its page and set HF_TOKEN to a token that "
                "may read it."
            )
        if status in (_DENIED, _FORBIDDEN):
            return AccessError(
                f"{host} has no {repo}, or it is private; check the spelling, or set HF_TOKEN to a token that may "
                "read it."
            )
        if status == _NOT_FOUND:
            return AccessError(f"{host} has no model {repo}; check the spelling.") if code else MissingError()
        if status == _TOO_MANY:
            return AccessError(f"{host} asks to slow down (status 429); try again in some minutes, or set HF_TOKEN.")
        if status >= _SERVER_ERRORS_FROM:
            return _BrokenOffError(f"answered with status {status}")
        return AccessError(f"{host} refuses {repo} with status {status}; check HF_ENDPOINT and HF_TOKEN.")


def _skipping(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield a body without its first `count` bytes."""
    for chunk in chunks:
        if count < len(chunk):
            yield chunk[count:] if count else chunk
        count = max(0, count - len(chunk))


class Ahead:
    """How many bytes to read of a file before its header's length is known, and how many of all files together.

    It learns the first from the files before.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._left = MAX_HEADERS_BYTES

    @property
    def length(self) -> int:
        """Bytes to read."""
        if len(self._lengths) < LEARNED_FROM:
            return FIRST_BYTES
        return int(SPARE * max(self._lengths))

    def learn(self, length: int) -> None:
        """Note how long a header was."""
        self._lengths.append(length)

    def take(self, length: int, name: str) -> None:
        """Note how much of a file is about to be read.

        Raises:
            InputError: It would be too much of all files together.
        """
        self._left -= length
        if self._left < 0:
            raise InputError(
                f"{name}: with it the headers of this model take more than {MAX_HEADERS_BYTES >> 20} MiB; check where "
                "it comes from."
            )


class RemoteFile:
    """A `Source` on the hub: the first read brings `Ahead.length` bytes, later ones only what is missing of a range.

    Args:
        hub: Where it is.
        url: Its address.
        name: What messages call it.
        ahead: How much to read at first.
    """

    def __init__(self, hub: Hub, url: str, name: str, ahead: Ahead) -> None:
        self.name = name
        self.size: int | None = None
        self.reached = 0
        self._hub, self._url, self._ahead, self._content = hub, url, ahead, b""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset` on, fewer than `length` only where the file ends.

        Raises:
            AccessError: They cannot be had.
        """
        have, end = len(self._content), offset + length
        self.reached = max(self.reached, end)
        if end > have and (self.size is None or have < self.size):
            want = end - have if have else max(end, self._ahead.length)
            self._ahead.take(want, self.name)
            try:
                more, self.size = self._hub.get_range(self._url, self.name, have, want)
            except MissingError:
                raise AccessError(f"{self.name}: the hub lists this file and does not have it; try again.") from None
            self._content += more
        return self._content[offset:end]


class StreamedFile:
    """A `Source` on the hub that is read from front to back, in one transfer that ends where the reader stops.

    Args:
        hub: Where it is.
        url: Its address.
        name: What messages call it.
    """

    def __init__(self, hub: Hub, url: str, name: str) -> None:
        self.name = name
        self.size: int | None = None
        self._hub, self._url = hub, url
        self._begin, self._content, self._failures = 0, bytearray(), 0
        self._chunks: Iterator[bytes] | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset` on, fewer than `length` only where the file ends; `offset` never goes back.

        Raises:
            AccessError: They cannot be had.
        """
        while self._begin + len(self._content) < offset + length:
            drop = min(len(self._content), offset - self._begin)
            del self._content[:drop]
            self._begin += drop
            if not self._more():
                break
        at = offset - self._begin
        return bytes(self._content[at : at + length])

    def close(self) -> None:
        """End the transfer."""
        if self._chunks is not None:
            self._chunks.close()  # type: ignore[attr-defined] # it is a generator
            self._chunks = None

    def _more(self) -> bool:
        """Have at least one byte more; return whether there was one."""
        end = self._begin + len(self._content)
        if self.size is not None and end >= self.size:
            return False
        try:
            if self._chunks is None:
                self._chunks = self._window(end)
            chunk = next(self._chunks, None)
        except _BrokenOffError as error:
            self._chunks = None
            self._failures += 1
            if self._failures == ATTEMPTS:
                raise self._hub._given_up(self.name, error) from None  # noqa: SLF001 - of the same module
            return True
        except MissingError:
            raise AccessError(f"{self.name}: the hub lists this file and does not have it; try again.") from None
        if chunk is None:  # the window's end; the next one shows whether it is the file's
            self._chunks = None
            return self.size is not None
        self._content += chunk
        return True

    def _window(self, begin: int) -> Iterator[bytes]:
        with self._hub.transfer(self._url, (begin, begin + WINDOW_BYTES - 1)) as answer:
            self.size = answer.total
            got = 0
            for chunk in answer.chunks:
                got += len(chunk)
                yield chunk
            if got < (answer.expected or 0) or (not got and begin < (answer.total or 0)):
                raise _BrokenOffError(f"sent {got:,} of {answer.expected or 0:,} bytes")
