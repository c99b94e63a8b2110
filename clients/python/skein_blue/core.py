"""What both clients share: requests, answers, pages and subscriptions, without any input or output."""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, Generic, Iterator, List, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from . import methods

T = TypeVar("T")

#: What on_retry is: it is called with why a connection broke, and in how many seconds the
#: client connects again.
OnRetry = Callable[[Exception, float], None]

#: From how many bytes of parameters on a method that takes a form is asked by POST.
LONGEST_QUERY = 8 << 10

#: How many seconds a stream may be silent: a server sends something every 15 seconds.
SILENCE = 45

#: How many seconds to wait before the first attempt to connect again; each further one waits
#: twice as long, up to the longest.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30

SUBSCRIBE = "blue.skein.graph.subscribe"


class SkeinError(Exception):
    """A question that failed. name is that of the server's error (InvalidRequest,
    HandleNotFound, QueryTimeout, …), or one of the client's own:

    - Unreachable: no answer came; status is 0.
    - InvalidResponse: what answered is not a skein.
    - HTTPError: an error without a name, as a proxy answers.
    - PostNotSupported: the question is too long for a URL, and the server is too old to take
      questions by POST.
    """

    def __init__(self, name: str, message: str, status: int) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.status = status


class IncompleteWarning(UserWarning):
    """An answer may be incomplete."""


@dataclass(frozen=True)
class Count:
    """How many members a set has."""

    total: int
    #: Whether members may be missing in total.
    incomplete: bool
    #: Why.
    reason: Optional[str]


class Request(NamedTuple):
    """What is sent."""

    base: str
    nsid: str
    url: str
    headers: Dict[str, str]
    #: The form of a POST; None for a GET.
    body: Optional[bytes]


def address(base: str) -> str:
    """The address of a server as requests begin with it."""
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"the server's address is {base!r}; it must begin with http:// or https://")
    return base.rstrip("/")


def request(base: str, headers: Mapping[str, str], nsid: str, params: Mapping[str, Any]) -> Request:
    """The request that calls a method with parameters; those that are None are left out."""
    given = []
    for name, value in params.items():
        if value is None:
            continue
        for one in [value] if isinstance(value, (str, int, bool)) else value:
            given.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    text, url = urllib.parse.urlencode(given), f"{base}/xrpc/{nsid}"
    if nsid in methods.FORMS and len(text) > LONGEST_QUERY:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return Request(base, nsid, url, {**headers, **form}, text.encode())
    return Request(base, nsid, f"{url}?{text}", dict(headers), None)


def unreachable(asked: Request, error: Exception) -> SkeinError:
    """No answer came."""
    return SkeinError("Unreachable", f"{asked.base}: {error or type(error).__name__}", 0)


def broken(asked: Request, error: Exception, status: int) -> SkeinError:
    """What came is not an answer."""
    return SkeinError("InvalidResponse", f"{asked.base}: {error or type(error).__name__}", status)


def failure(asked: Request, status: int, body: bytes, phrase: str) -> SkeinError:
    """The error that a server answered."""
    if asked.body is not None and status == 405:
        return SkeinError(
            "PostNotSupported",
            f"{asked.base} does not take {asked.nsid} by POST (HTTP 405), and the parameters, {len(asked.body)} bytes, "
            "are too long for a URL: upgrade the server, or ask in several parts",
            status,
        )
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {}
    return SkeinError(str(said.get("error", "HTTPError")), str(said.get("message", phrase)), status)


def answer(asked: Request, status: int, body: bytes) -> Any:
    """Reads an answer, and warns if it may be incomplete."""
    try:
        said = json.loads(body)
    except ValueError as error:
        raise broken(asked, error, status) from None
    if not isinstance(said, dict):
        raise SkeinError("InvalidResponse", f"{asked.base}: the answer is not a JSON object", status)
    if said.get("incomplete") is True:  # getStats has a number
        _warn(f"an answer of {asked.nsid} may be incomplete: {said.get('reason', 'the server does not say why')}")
    return said


def _warn(message: str) -> None:
    """Warns at the line that called the client."""
    here, level, frame = os.path.dirname(__file__) + os.sep, 1, sys._getframe(0)
    while frame.f_back and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, IncompleteWarning, stacklevel=level)


class Walk(Generic[T]):
    """The pages of a set that have come so far."""

    def __init__(self) -> None:
        #: How many items the set has; None until the first page has come.
        self.total: Optional[int] = None
        #: Whether something may be missing in the pages that have come so far.
        self.incomplete = False
        #: Why.
        self.reason: Optional[str] = None
        self._cursor: Optional[str] = None
        self._ended = False
        self._items: Deque[T] = deque()

    def _take(self, page: Union[methods.QueryOutput, methods.ListOutput], items: Sequence[T]) -> None:
        self.total = page["total"]
        if page.get("incomplete"):
            self.incomplete, self.reason = True, page.get("reason")
        self._items.extend(items)
        self._cursor = page.get("cursor")
        self._ended = not self._cursor


class Changes:
    """The changes of a set, over as many connections as it takes."""

    def __init__(self, base: str, set_: str, cursor: Optional[str], on_retry: Optional[OnRetry]) -> None:
        self.base, self.set, self.cursor, self.on_retry = base, set_, cursor, on_retry
        self.begin()
        self._wait: float = FIRST_WAIT

    def begin(self) -> Dict[str, Any]:
        """Begins a connection, and returns what it asks for."""
        self._rest, self._event = b"", ""
        return {"set": self.set, "cursor": self.cursor}

    def check(self, status: int, content_type: str) -> None:
        """Checks that an answer is a stream."""
        if not content_type.startswith("text/event-stream"):
            raise SkeinError("InvalidResponse", f"{self.base}: the answer is not a stream of events", status)

    def read(self, data: bytes) -> Iterator[methods.SubscribeChange]:
        """The changes that bytes of the stream complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode()
            if text.startswith("event: "):
                self._event = text[len("event: "):]
            elif text.startswith("data: "):
                yield self._change(text[len("data: "):])

    def _change(self, data: str) -> methods.SubscribeChange:
        try:
            said = json.loads(data)
        except ValueError:
            said = None
        if self._event == "error" and isinstance(said, dict):  # why the server ends the stream
            raise SkeinError(str(said.get("error", "HTTPError")), str(said.get("message", "the server ended the stream")), 0)
        if not isinstance(said, dict) or not isinstance(said.get("cursor"), str):
            raise SkeinError("InvalidResponse", f"{self.base}: an event is not a change with a cursor", 200)
        change: methods.SubscribeChange = said  # type: ignore[assignment]
        self.cursor, self._wait = change["cursor"], FIRST_WAIT
        return change

    def ended(self) -> SkeinError:
        """The server ended the stream without a word."""
        return SkeinError("Unreachable", f"{self.base}: the connection ended", 0)

    def retry(self, error: SkeinError) -> float:
        """How many seconds to wait until the next connection; raises an error that would be
        the same then."""
        if error.status == 501 or 400 <= error.status < 500 and error.status not in (408, 429):
            raise error
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        if self.on_retry:
            self.on_retry(error, wait)
        return wait


def members(page: methods.QueryOutput) -> List[str]:
    """The members of a page."""
    return page.get("members", [])


def count(page: methods.QueryOutput) -> Count:
    """How many members a set has, by an answer."""
    return Count(page["total"], page.get("incomplete", False), page.get("reason"))
