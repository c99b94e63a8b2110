"""The blocking client. It needs only Python."""

from __future__ import annotations

import http.client
import itertools
import os
import socket
import time
import urllib.error
import urllib.request
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, TypeVar, Union

from . import core, methods

T = TypeVar("T")

#: The errors of a broken connection.
BROKEN = (OSError, http.client.HTTPException)


class Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler, urllib.request.HTTPRedirectHandler):
    """Makes urllib's connections, and keeps each for another request, of any thread, once its answer was read."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: Dict[Any, List[http.client.HTTPConnection]] = {}

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        tunnel: Optional[str] = getattr(req, "_tunnel_host", None)  # behind a proxy
        kept = self._kept.setdefault((http_class, req.host, tunnel), [])
        headers = {**req.headers, **req.unredirected_hdrs}
        for_proxy = {k: headers.pop(k) for k in ("Proxy-authorization",) if tunnel and k in headers}
        while True:
            try:
                connection, fresh = kept.pop(), False
            except IndexError:
                connection, fresh = http_class(req.host, **options), True
                if tunnel:
                    connection.set_tunnel(tunnel, headers=for_proxy)
            connection.timeout = req.timeout
            if connection.sock:
                connection.sock.settimeout(req.timeout)
            try:
                connection.request(req.get_method(), req.selector, req.data, headers)
                answer: Any = connection.getresponse()
                break
            except BaseException as error:
                connection.close()
                if fresh or not isinstance(error, BROKEN) or isinstance(error, socket.timeout):
                    raise
                # The server has closed the connection since.
        close = answer.close

        def end() -> None:
            if answer.closed:
                return
            if answer.isclosed() and connection.sock:  # it was read
                kept.append(connection)
            else:
                connection.close()
            close()

        answer.close, answer.url, answer.msg = end, req.full_url, answer.reason
        return answer

    def redirect_request(self, req: urllib.request.Request, *args: Any) -> Optional[urllib.request.Request]:
        new = super().redirect_request(req, *args)
        if new and new.host != req.host:
            new.headers = {}  # they may be secret
        return new

    def close(self) -> None:
        for kept in self._kept.values():
            while kept:
                kept.pop().close()


class Pages(core.Walk[T], Iterator[T]):
    """The items of an answer, page by page. Iterate over it once:

        members = skein.members(set_)
        for did in members: ...
        if members.incomplete: print(members.reason)
    """

    def __init__(self, fetch: Callable[[Dict[str, Any]], Dict[str, Any]], field: str, most: int, params: Mapping[str, Any]) -> None:
        super().__init__(field, most, params)
        self._fetch = fetch

    def __iter__(self) -> Pages[T]:
        return self

    def __next__(self) -> T:
        return self._one(None)

    def _one(self, n: Optional[int]) -> T:
        while not self._items:
            if self._ended:
                raise StopIteration
            self._take(self._fetch(self._next(n)))
        return self._items.popleft()

    def first(self, n: int) -> List[T]:
        """Returns the next n items, or as many as there are. It asks the server for no more."""
        found: List[T] = []
        try:
            while len(found) < n:
                found.append(self._one(n - len(found)))
        except StopIteration:
            pass
        return found


class PagedMethods(methods.PagedMethods):
    def __init__(self, call: Callable[[str, Dict[str, Any]], Any]) -> None:
        self._call = call

    def _pages(self, nsid: str, field: str, most: int, params: Dict[str, Any]) -> Any:
        return Pages(lambda asked: self._call(nsid, asked), field, most, params)


class Skein(methods.Methods):
    """A server. It may be silent for timeout seconds. Every request has these headers, and the token that the
    server's operator gave you. A call that fails because the server is busy or the connection breaks is
    repeated up to retries times. Connections stay open until close, which is optional."""

    def __init__(self, base: str = "http://127.0.0.1:3210", timeout: float = 30, headers: Optional[Mapping[str, str]] = None, token: Optional[str] = None, retries: int = 3) -> None:
        self.base = core.address(base)
        self.timeout = timeout
        self.headers = core.sent(headers, token)
        self.retries = retries
        self._connections = Connections()
        weakref.finalize(self, self._connections.close)
        self._urllib = urllib.request.build_opener(self._connections)

    def __enter__(self) -> Skein:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._connections.close()

    def _open(self, asked: core.Request, timeout: float) -> Any:
        """Sends a request, and returns the response unless it is an error."""
        try:
            return self._urllib.open(urllib.request.Request(asked.url, asked.body, asked.headers), timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                try:
                    body = error.read()
                except BROKEN:
                    body = b""
            raise core.failure(asked, error.code, body, error.reason, error.headers) from None
        except BROKEN as error:
            raise core.unreachable(asked, error, not isinstance(error, socket.timeout)) from None

    def _once(self, asked: core.Request) -> Any:
        with self._open(asked, self.timeout) as response:
            try:
                status, body = response.status, response.read()
            except BROKEN as error:
                raise core.broken(asked, error, response.status, not isinstance(error, socket.timeout)) from None
        return core.answer(asked, status, body)

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        asked = core.request(self.base, self.headers, nsid, params)
        before: Optional[core.SkeinError] = None
        for attempt in itertools.count():
            try:
                return self._once(asked)
            except core.SkeinError as error:
                time.sleep(core.wait(error, attempt, self.retries, before))
                before = error

    @property
    def pages(self) -> methods.PagedMethods:
        """The methods that return pages: each iterates over the items of all of them."""
        return PagedMethods(self._call)

    def members(self, set_: str, names: bool = False) -> Pages[str]:
        """Iterates over all members of a set, page by page. With names, handles has the handles that are known."""
        return self.pages.query(set_, names=names or None)

    def count(self, set_: str) -> core.Count:
        """Counts the members of a set."""
        return core.count(self.query(set_, count=True))

    def records(self, set_: str) -> Pages[methods.ListItem]:
        """Iterates over all members of a set that come from one set, with their records, newest first."""
        return self.pages.list(set_, order="newest")

    def subscribe(self, set_: str, cursor: Optional[str] = None, on_retry: Optional[core.OnRetry] = None) -> Iterator[methods.SubscribeChange]:
        """Streams the members that enter and leave a set, from now on or after a cursor. It
        reconnects when the connection breaks, and misses nothing: if the server does not know
        what changed meanwhile, a change has reset."""
        return self._changes(core.Changes(self.base, set_, cursor, on_retry), lambda change: None)

    def _changes(self, changes: core.Changes, prepare: Callable[[methods.SubscribeChange], None]) -> Iterator[methods.SubscribeChange]:
        """Yields changes. If prepare fails with a change, it comes again."""
        while True:
            asked = core.request(self.base, self.headers, core.SUBSCRIBE, changes.begin())
            broke = changes.ended()
            try:
                with self._open(asked, core.SILENCE) as stream:
                    changes.check(stream.status, stream.headers.get("Content-Type", ""))
                    for line in stream:
                        for change in changes.read(line):
                            prepare(change)
                            yield change
            except core.SkeinError as error:
                broke = error
            except BROKEN as error:
                broke = core.unreachable(asked, error, True)
            time.sleep(changes.retry(broke))

    def watch(self, set_: str, state: Union[str, "os.PathLike[str]"], on_retry: Optional[core.OnRetry] = None) -> Iterator[core.WatchChange]:
        """Tells each change of a set from its first run on. It keeps its place in the file state, so that
        a later run tells what has changed since. A change that you were handling when the program ended
        comes again."""
        place = core.Place(set_, state)
        yield from place.tell()

        def compare(change: methods.SubscribeChange) -> None:
            if place.compares(change):
                place.check(self.count(set_).total)
                place.now = set(self.members(set_))

        for change in self._changes(core.Changes(self.base, set_, place.cursor, on_retry), compare):
            place.take(change)
            yield from place.tell()
