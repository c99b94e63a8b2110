"""The async client with the interface of the sync one, so that one test covers both."""

import asyncio
import inspect
from typing import Any, Callable, Iterator, List

from skein_blue import AsyncSkein, Skein


class Blocking:
    """Blocks for each answer of an AsyncSkein."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._skein = AsyncSkein(*args, **options)
        self._loop = asyncio.new_event_loop()
        self._iterators: List[Any] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._skein, name)
        if name == "pages":
            return BlockingPages(self, method)
        return self._blocking(method)

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **params: Any) -> Any:
            answer = method(*args, **params)
            if inspect.isawaitable(answer):
                return self._loop.run_until_complete(answer)
            self._iterators.append(answer)
            return BlockingIterator(self._loop, answer)

        return call

    def shut(self) -> None:
        for items in self._iterators:
            if inspect.isasyncgen(items):
                self._loop.run_until_complete(items.aclose())
        self._loop.run_until_complete(self._skein.close())
        self._loop.run_until_complete(asyncio.sleep(0))  # abandoned generators end here
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class BlockingPages:
    def __init__(self, skein: Blocking, pages: Any) -> None:
        self._skein, self._pages = skein, pages

    def __getattr__(self, name: str) -> Any:
        return self._skein._blocking(getattr(self._pages, name))


class BlockingIterator:
    """Blocks for each item of an async iterator, and has the iterator's attributes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items: Any) -> None:
        self._loop, self._items = loop, items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run_until_complete(self._items.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def first(self, n: int) -> Any:
        return self._loop.run_until_complete(self._items.first(n))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)


class Plain(Skein):
    def shut(self) -> None:
        self.close()


#: Both clients, by name.
CLIENTS = {"Skein": Plain, "AsyncSkein": Blocking}
