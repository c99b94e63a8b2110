"""The code that both clients share: requests, answers, pages and subscriptions, without any I/O."""

from __future__ import annotations

import email.utils
import json
import os
import random
import sys
import time
import urllib.parse
import warnings
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Deque, Dict, Generic, Iterable, Iterator, Mapping, NamedTuple, Optional, Set, TypeVar, Union

from . import methods

T = TypeVar("T")

#: The type of on_retry, which is called with the error that broke a connection and the seconds
#: until the client reconnects.
OnRetry = Callable[[Exception, float], None]

#: Methods that accept a form use POST if their parameters have more bytes.
LONGEST_QUERY = 7 << 10

#: How many seconds a stream may be silent. A server sends something every 15 seconds.
SILENCE = 45

#: How many seconds to wait before the first repetition or reconnection. Each further wait is twice as
#: long, up to the longest. All are longer by up to half, so that clients do not return all at once.
FIRST_WAIT, LONGEST_WAIT = 0.5, 30

#: A call is not repeated if the server asks for a longer wait, in seconds.
LONGEST_RETRY_AFTER = 60

SUBSCRIBE = "blue.skein.graph.subscribe"


class SkeinError(Exception):
    """A failed query. name is the name of the server's error (InvalidRequest,
    HandleNotFound, QueryTimeout, …), or one of the client's own:

    - Unreachable: no answer; status is 0.
    - InvalidResponse: the answer does not come from a skein.
    - HTTPError: an error without a name, as from a proxy.
    - PostNotSupported: the query is too long for a URL, and the server is too old to accept
      queries by POST.
    """

    def __init__(self, name: str, message: str, status: int, retry_after: Optional[float] = None, again: bool = False) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.status = status
        #: The seconds that the server asks to wait, if it does.
        self.retry_after = retry_after
        #: Whether the client repeats the call. Every method only reads, so that is safe.
        self._again = again


class IncompleteWarning(UserWarning):
    """An answer may be incomplete."""


@dataclass(frozen=True)
class Count:
    """The number of members of a set."""

    total: int
    #: Whether total may lack members.
    incomplete: bool
    #: Why it may.
    reason: Optional[str]


class Request(NamedTuple):
    """A request to a server."""

    base: str
    nsid: str
    url: str
    headers: Dict[str, str]
    #: The form of a POST; None for a GET.
    body: Optional[bytes]


def address(base: str) -> str:
    """Returns a server's address as the start of request URLs."""
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"server address {base!r} does not start with http:// or https://")
    return base.rstrip("/")


def sent(headers: Optional[Mapping[str, str]], token: Optional[str]) -> Dict[str, str]:
    """Returns the headers of every request, with the token that the server's operator gave the client.
    It leaves Authorization to the service auth token of an account."""
    found = dict(headers or {})
    if token and any(name.lower() == "authorization" for name in found):
        found["Skein-Token"] = token
    elif token:
        found["Authorization"] = f"Bearer {token}"
    return found


def request(base: str, headers: Mapping[str, str], nsid: str, params: Mapping[str, Any]) -> Request:
    """Returns the request for a method with parameters, without those that are None."""
    pairs = []
    for name, value in params.items():
        if value is None:
            continue
        many = isinstance(value, Iterable) and not isinstance(value, str)
        pairs += [(name, _spelled(one)) for one in (value if many else [value])]
    text, url = urllib.parse.urlencode(pairs), f"{base}/xrpc/{nsid}"
    if nsid in methods.FORMS and len(text) > LONGEST_QUERY:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        return Request(base, nsid, url, {**headers, **form}, text.encode())
    return Request(base, nsid, f"{url}?{text}", dict(headers), None)


def _spelled(value: Any) -> str:
    """Returns a value as the server spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}s"
    return str(value)


def unreachable(asked: Request, error: Exception, again: bool) -> SkeinError:
    """Returns the error for a missing answer."""
    return SkeinError("Unreachable", f"{asked.base}: {error or type(error).__name__}", 0, again=again)


def broken(asked: Request, error: Exception, status: int, again: bool) -> SkeinError:
    """Returns the error for an answer that cannot be read."""
    return SkeinError("InvalidResponse", f"{asked.base}: {error or type(error).__name__}", status, again=again)


def failure(asked: Request, status: int, body: bytes, phrase: str, headers: Any) -> SkeinError:
    """Returns the error in a server's answer."""
    if asked.body is not None and status == 405:
        return SkeinError(
            "PostNotSupported",
            f"{asked.base} does not accept {asked.nsid} by POST (HTTP 405), and {len(asked.body)} bytes of parameters "
            "are too long for a URL; upgrade the server, or split the query",
            status,
        )
    try:
        error = json.loads(body)
    except ValueError:
        error = None
    if not isinstance(error, dict):
        error = {}
    after = _seconds(headers.get("Retry-After"))
    return SkeinError(str(error.get("error", "HTTPError")), str(error.get("message", phrase)), status, after, status in (429, 503))


def _seconds(after: Optional[str]) -> Optional[float]:
    """Returns the seconds in a Retry-After, which may be a date; None if there are none."""
    if after is None:
        return None
    try:
        return float(after) if after.isdecimal() else max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def wait(error: SkeinError, attempt: int, retries: int, before: Optional[SkeinError]) -> float:
    """Returns the seconds to wait before a call is repeated. Raises its error if that would not help."""
    if before and error.name == "JwtReplayed":  # the first attempt used a token for one request
        raise before from None
    after = error.retry_after or 0
    if attempt >= retries or not error._again or after > LONGEST_RETRY_AFTER:
        raise error
    return _longer(max(after, min(FIRST_WAIT * 2**attempt, LONGEST_WAIT)))


def _longer(seconds: float) -> float:
    return seconds * random.uniform(1, 1.5)


def answer(asked: Request, status: int, body: bytes) -> Any:
    """Parses an answer, and warns if it may be incomplete."""
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise broken(asked, error, status, False) from None
    if not isinstance(parsed, dict):
        raise SkeinError("InvalidResponse", f"{asked.base}: the answer is not a JSON object", status)
    if parsed.get("incomplete") is True:  # in get_stats it is a number
        _warn(f"an answer of {asked.nsid} may be incomplete: {parsed.get('reason', 'the server gives no reason')}")
    return parsed


def _warn(message: str) -> None:
    """Issues a warning for the line that called the client."""
    here, level, frame = os.path.dirname(__file__) + os.sep, 1, sys._getframe(0)
    while frame.f_back and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, IncompleteWarning, stacklevel=level)


class Walk(Generic[T]):
    """The pages of an answer so far."""

    def __init__(self, field: str, most: int, params: Mapping[str, Any]) -> None:
        #: The number of items of all pages; None before the first page, and if the server does not say.
        self.total: Optional[int] = None
        #: Whether the pages so far may lack items.
        self.incomplete = False
        #: Why they may.
        self.reason: Optional[str] = None
        #: With names: the handles of accounts, and of the authors of records, on the pages so far.
        self.handles: Dict[str, str] = {}
        #: The last page, as the method returns it.
        self.page: Dict[str, Any] = {}
        self._field, self._most, self._params = field, most, params
        self._ended = False
        self._items: Deque[T] = deque()

    def _next(self, n: Optional[int] = None) -> Dict[str, Any]:
        """Returns the parameters for the next page, with n items at most."""
        return {**self._params, "limit": min(n or self._most, self._most), "cursor": self.page.get("cursor")}

    def _take(self, page: Dict[str, Any]) -> None:
        self.page, self.total = page, page.get("total")
        self.handles.update(page.get("handles") or {})
        if page.get("incomplete"):
            self.incomplete, self.reason = True, page.get("reason")
        self._items.extend(page.get(self._field) or ())
        self._ended = not page.get("cursor")


class Changes:
    """The changes of a set, over as many connections as it takes."""

    def __init__(self, base: str, set_: str, cursor: Optional[str], on_retry: Optional[OnRetry]) -> None:
        self.base, self.set, self.cursor, self.on_retry = base, set_, cursor, on_retry
        self.begin()
        self._wait: float = FIRST_WAIT

    def begin(self) -> Dict[str, Any]:
        """Starts a connection, and returns its parameters."""
        self._rest, self._event = b"", ""
        return {"set": self.set, "cursor": self.cursor}

    def check(self, status: int, content_type: str) -> None:
        """Checks that an answer is a stream of events."""
        if not content_type.startswith("text/event-stream"):
            raise SkeinError("InvalidResponse", f"{self.base}: the answer is not a stream of events", status)

    def read(self, data: bytes) -> Iterator[methods.SubscribeChange]:
        """Reads bytes of the stream, and yields the changes that they complete. If the receiver fails, a change comes again."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode()
            if text.startswith("event: "):
                self._event = text[len("event: "):]
            elif text.startswith("data: "):
                change = self._change(text[len("data: "):])
                yield change
                self.cursor, self._wait = change["cursor"], FIRST_WAIT

    def _change(self, data: str) -> methods.SubscribeChange:
        try:
            event = json.loads(data)
        except ValueError:
            event = None
        if self._event == "error" and isinstance(event, dict):  # the reason why the server ends the stream
            raise SkeinError(str(event.get("error", "HTTPError")), str(event.get("message", "the server ended the stream")), 0)
        if not isinstance(event, dict) or not isinstance(event.get("cursor"), str):
            raise SkeinError("InvalidResponse", f"{self.base}: an event is not a change with a cursor", 200)
        change: methods.SubscribeChange = event  # type: ignore[assignment]
        return change

    def ended(self) -> SkeinError:
        """Returns the error for a stream that ended without one."""
        return SkeinError("Unreachable", f"{self.base}: the connection ended", 0)

    def retry(self, error: SkeinError) -> float:
        """Returns the seconds to wait before the next connection. Raises the error if a retry
        would fail with it as well."""
        if error.status == 501 or 400 <= error.status < 500 and error.status not in (408, 429):
            raise error
        wait, self._wait = _longer(max(self._wait, error.retry_after or 0)), min(2 * self._wait, LONGEST_WAIT)
        if self.on_retry:
            self.on_retry(error, wait)
        return wait


#: How many members a watch keeps at most.
MOST_WATCHED = 50_000


@dataclass(frozen=True)
class WatchChange:
    """A change of a watched set."""

    #: "entered" or "left".
    type: str
    member: str


class Place:
    """The place of a watch, in a file: what was reported, and the changes that may not have been."""

    def __init__(self, set_: str, state: Union[str, "os.PathLike[str]"]) -> None:
        self._path, self.set = os.fspath(state), set_
        self.cursor: Optional[str] = None
        self.told: Set[str] = set()
        self.pending: Deque[WatchChange] = deque()
        #: The members, if they must be compared.
        self.now: Optional[Set[str]] = None
        try:
            with open(self._path, encoding="utf-8") as file:
                stored = json.load(file)
        except FileNotFoundError:
            return
        if stored["set"] != set_:
            raise ValueError(f"{self._path} is the state of another set, {stored['set']}")
        self.cursor, self.told = stored["cursor"], set(stored["members"])
        self.pending.extend(WatchChange(*change) for change in stored["pending"])

    def save(self) -> None:
        """Replaces the file."""
        pending = [(change.type, change.member) for change in self.pending]
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump({"set": self.set, "cursor": self.cursor, "members": sorted(self.told), "pending": pending}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + ".new", self._path)

    def compares(self, change: methods.SubscribeChange) -> bool:
        """Reports whether the members must be compared, because the server does not know what has changed."""
        self.now = None
        return "reset" in change or self.cursor is None

    def check(self, total: int) -> None:
        """Raises an error if the set is too large."""
        if total > MOST_WATCHED:
            raise ValueError(f"the set has {total} members, and a watch that lasts keeps at most {MOST_WATCHED}")

    def take(self, change: methods.SubscribeChange) -> None:
        """Adds what has changed to pending."""
        entered, left = set(change.get("entered", [])), set(change.get("left", []))
        if self.now is not None:
            entered, left = self.now, self.told - self.now
        entered, left = entered - self.told, left & self.told
        self.told = (self.told - left) | entered
        self.check(len(self.told))
        if self.cursor is not None:
            self.pending.extend(WatchChange("left", member) for member in sorted(left))
            self.pending.extend(WatchChange("entered", member) for member in sorted(entered))
        begins, self.cursor = self.cursor is None, change["cursor"]
        if begins:
            self.save()

    def tell(self) -> Iterator[WatchChange]:
        """Yields the pending changes, which are stored before and after."""
        if not self.pending:
            return
        self.save()
        try:
            while self.pending:
                yield self.pending[0]
                self.pending.popleft()
        finally:
            self.save()


def count(page: methods.QueryOutput) -> Count:
    """Returns the count in an answer."""
    return Count(page["total"], page.get("incomplete", False), page.get("reason"))
