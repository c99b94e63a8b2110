"""The blocking client. It needs only Python."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, TypeVar, Union

from . import core, methods

T = TypeVar("T")

#: The errors of a broken connection.
BROKEN = (OSError, http.client.HTTPException)


class Pages(core.Walk[T], Iterator[T]):
    """The items of a set, page by page. Iterate over it once:

        members = skein.members(set_)
        for did in members: ...
        if members.incomplete: print(members.reason)
    """

    def __init__(self, fetch: Callable[[Pages[T], Optional[str]], None]) -> None:
        super().__init__()
        self._fetch = fetch

    def __iter__(self) -> Pages[T]:
        return self

    def __next__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopIteration
            self._fetch(self, self._cursor)
        return self._items.popleft()


class Skein(methods.Methods):
    """A server. It may be silent for timeout seconds. Every request has these headers, such as
    {"Authorization": "Bearer …"}."""

    def __init__(self, base: str = "http://127.0.0.1:3210", timeout: float = 30, headers: Optional[Mapping[str, str]] = None) -> None:
        self.base = core.address(base)
        self.timeout = timeout
        self.headers: Dict[str, str] = dict(headers or {})

    def _open(self, asked: core.Request, timeout: float) -> Any:
        """Sends a request, and returns the response unless it is an error."""
        try:
            return urllib.request.urlopen(urllib.request.Request(asked.url, asked.body, asked.headers), timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                try:
                    body = error.read()
                except BROKEN:
                    body = b""
            raise core.failure(asked, error.code, body, error.reason) from None
        except BROKEN as error:
            raise core.unreachable(asked, error) from None

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        asked = core.request(self.base, self.headers, nsid, params)
        with self._open(asked, self.timeout) as response:
            try:
                status, body = response.status, response.read()
            except BROKEN as error:
                raise core.broken(asked, error, response.status) from None
        return core.answer(asked, status, body)

    def members(self, set_: str) -> Pages[str]:
        """Iterates over all members of a set, page by page."""

        def fetch(pages: Pages[str], cursor: Optional[str]) -> None:
            page = self.query(set_, limit=1000, cursor=cursor)
            pages._take(page, core.members(page))

        return Pages(fetch)

    def count(self, set_: str) -> core.Count:
        """Counts the members of a set."""
        return core.count(self.query(set_, count=True))

    def records(self, set_: str) -> Pages[methods.ListItem]:
        """Iterates over all members of a set that come from one set, with their records, newest first."""

        def fetch(pages: Pages[methods.ListItem], cursor: Optional[str]) -> None:
            page = self.list(set_, order="newest", limit=1000, cursor=cursor)
            pages._take(page, page["items"])

        return Pages(fetch)

    def subscribe(self, set_: str, cursor: Optional[str] = None, on_retry: Optional[core.OnRetry] = None) -> Iterator[methods.SubscribeChange]:
        """Streams the members that enter and leave a set, from now on or after a cursor. It
        reconnects when the connection breaks, and misses nothing: if the server does not know
        what changed meanwhile, a change has reset."""
        changes = core.Changes(self.base, set_, cursor, on_retry)
        while True:
            asked = core.request(self.base, self.headers, core.SUBSCRIBE, changes.begin())
            broke = changes.ended()
            try:
                with self._open(asked, core.SILENCE) as stream:
                    changes.check(stream.status, stream.headers.get("Content-Type", ""))
                    for line in stream:
                        yield from changes.read(line)
            except core.SkeinError as error:
                broke = error
            except BROKEN as error:
                broke = core.unreachable(asked, error)
            time.sleep(changes.retry(broke))

    def watch(self, set_: str, state: Union[str, "os.PathLike[str]"], on_retry: Optional[core.OnRetry] = None) -> Iterator[core.WatchChange]:
        """Tells each change of a set from its first run on. It keeps its place in the file state, so that
        a later run tells what has changed since. A change that you were handling when the program ended
        comes again."""
        place = core.Place(set_, state)
        yield from place.tell()
        for change in self.subscribe(set_, place.cursor, on_retry):
            now = None
            if place.compares(change):
                place.check(self.count(set_).total)
                now = set(self.members(set_))
            place.take(change, now)
            yield from place.tell()
