"""The asyncio client. It needs httpx: pip install "skein-blue[async]"."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Mapping, Optional, TypeVar, Union

from . import core, methods

T = TypeVar("T")


class AsyncPages(core.Walk[T], AsyncIterator[T]):
    """The items of an answer, page by page. Iterate over it once:

        members = skein.members(set_)
        async for did in members: ...
        if members.incomplete: print(members.reason)
    """

    def __init__(self, fetch: Callable[[Dict[str, Any]], Awaitable[Dict[str, Any]]], field: str, most: int, params: Mapping[str, Any]) -> None:
        super().__init__(field, most, params)
        self._fetch = fetch

    def __aiter__(self) -> AsyncPages[T]:
        return self

    async def __anext__(self) -> T:
        return await self._one(None)

    async def _one(self, n: Optional[int]) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._take(await self._fetch(self._next(n)))
        return self._items.popleft()

    async def first(self, n: int) -> List[T]:
        """Returns the next n items, or as many as there are. It asks the server for no more."""
        found: List[T] = []
        try:
            while len(found) < n:
                found.append(await self._one(n - len(found)))
        except StopAsyncIteration:
            pass
        return found


class AsyncPagedMethods(methods.AsyncPagedMethods):
    def __init__(self, call: Callable[[str, Dict[str, Any]], Awaitable[Any]]) -> None:
        self._call = call

    def _pages(self, nsid: str, field: str, most: int, params: Dict[str, Any]) -> Any:
        return AsyncPages(lambda asked: self._call(nsid, asked), field, most, params)


class AsyncSkein(methods.AsyncMethods):
    """A server. It may be silent for timeout seconds. Every request has these headers, and the token that the
    server's operator gave you. A call that fails because the server is busy or the connection breaks is
    repeated up to retries times. Close it, or use it in async with:

        async with AsyncSkein("http://127.0.0.1:3210") as skein: ...
    """

    def __init__(self, base: str = "http://127.0.0.1:3210", timeout: float = 30, headers: Optional[Mapping[str, str]] = None, token: Optional[str] = None, retries: int = 3) -> None:
        try:
            import httpx
        except ImportError:
            raise ImportError('AsyncSkein needs httpx: pip install "skein-blue[async]"') from None
        self.base = core.address(base)
        self.timeout = timeout
        self.headers = core.sent(headers, token)
        self.retries = retries
        self._httpx = httpx
        #: The errors of a connection that breaks, or cannot be made.
        self._broken = (httpx.HTTPError, httpx.InvalidURL)
        # Each subscription holds a connection: the pool must not run out of them.
        self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=True, limits=httpx.Limits(max_connections=None, max_keepalive_connections=20))

    async def __aenter__(self) -> AsyncSkein:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    def _open(self, asked: core.Request, timeout: Any) -> Any:
        """Sends a request, as a context manager."""
        return self._client.stream("GET" if asked.body is None else "POST", asked.url, headers=asked.headers, content=asked.body, timeout=timeout)

    async def _body(self, asked: core.Request, response: Any) -> bytes:
        """Returns the body of a response, or raises its error."""
        broken: Optional[Exception] = None
        body = b""
        try:
            body = await response.aread()
        except self._broken as error:
            broken = error
        if response.is_error:
            raise core.failure(asked, response.status_code, body, response.reason_phrase, response.headers)
        if broken:
            raise core.broken(asked, broken, response.status_code, self._again(broken))
        return body

    def _again(self, error: Exception) -> bool:
        return not isinstance(error, (self._httpx.TimeoutException, self._httpx.InvalidURL, self._httpx.UnsupportedProtocol))

    async def _once(self, asked: core.Request) -> Any:
        try:
            async with self._open(asked, self.timeout) as response:
                status, body = response.status_code, await self._body(asked, response)
        except self._broken as error:
            raise core.unreachable(asked, error, self._again(error)) from None
        return core.answer(asked, status, body)

    async def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        asked = core.request(self.base, self.headers, nsid, params)
        before: Optional[core.SkeinError] = None
        for attempt in itertools.count():
            try:
                return await self._once(asked)
            except core.SkeinError as error:
                await asyncio.sleep(core.wait(error, attempt, self.retries, before))
                before = error

    @property
    def pages(self) -> methods.AsyncPagedMethods:
        """The methods that return pages: each iterates over the items of all of them."""
        return AsyncPagedMethods(self._call)

    def members(self, set_: str, names: bool = False) -> AsyncPages[str]:
        """Iterates over all members of a set, page by page. With names, handles has the handles that are known."""
        return self.pages.query(set_, names=names or None)

    async def count(self, set_: str) -> core.Count:
        """Counts the members of a set."""
        return core.count(await self.query(set_, count=True))

    def records(self, set_: str) -> AsyncPages[methods.ListItem]:
        """Iterates over all members of a set that come from one set, with their records, newest first."""
        return self.pages.list(set_, order="newest")

    def subscribe(self, set_: str, cursor: Optional[str] = None, on_retry: Optional[core.OnRetry] = None) -> AsyncIterator[methods.SubscribeChange]:
        """Streams the members that enter and leave a set, from now on or after a cursor. It
        reconnects when the connection breaks, and misses nothing: if the server does not know
        what changed meanwhile, a change has reset."""
        return self._changes(core.Changes(self.base, set_, cursor, on_retry))

    async def _changes(self, changes: core.Changes, prepare: Optional[Callable[[methods.SubscribeChange], Awaitable[None]]] = None) -> AsyncIterator[methods.SubscribeChange]:
        """Yields changes. If prepare fails with a change, it comes again."""
        while True:
            asked = core.request(self.base, self.headers, core.SUBSCRIBE, changes.begin())
            broke = changes.ended()
            try:
                async with self._open(asked, self._httpx.Timeout(self.timeout, read=core.SILENCE)) as response:
                    if response.is_error:
                        await self._body(asked, response)
                    changes.check(response.status_code, response.headers.get("Content-Type", ""))
                    async for data in response.aiter_bytes():
                        for change in changes.read(data):
                            if prepare:
                                await prepare(change)
                            yield change
            except core.SkeinError as error:
                broke = error
            except self._broken as error:
                broke = core.unreachable(asked, error, True)
            await asyncio.sleep(changes.retry(broke))

    async def watch(self, set_: str, state: Union[str, "os.PathLike[str]"], on_retry: Optional[core.OnRetry] = None) -> AsyncIterator[core.WatchChange]:
        """Tells each change of a set from its first run on. It keeps its place in the file state, so that
        a later run tells what has changed since. A change that you were handling when the program ended
        comes again."""
        place = core.Place(set_, state)
        for told in place.tell():
            yield told

        async def compare(change: methods.SubscribeChange) -> None:
            if place.compares(change):
                place.check((await self.count(set_)).total)
                place.now = {member async for member in self.members(set_)}

        async for change in self._changes(core.Changes(self.base, set_, place.cursor, on_retry), compare):
            place.take(change)
            for told in place.tell():
                yield told
