"""Asks a skein: sets, rankings, records, and what changes. It needs nothing but Python.

    from skein import Skein

    skein = Skein("http://127.0.0.1:3210")
    for did in skein.members(f"intersect(followers({a}), followers({b}))"):
        ...
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, Iterator, Optional

from . import methods
from .methods import *  # noqa: F401,F403

__all__ = ["Skein", "SkeinError"]


#: How a connection breaks.
BROKEN = (OSError, http.client.HTTPException)


class SkeinError(Exception):
    """An answer that is an error: InvalidRequest, HandleNotFound, QueryTimeout, …; Unreachable,
    with status 0; or InvalidResponse, of what is no skein's."""

    def __init__(self, name: str, message: str, status: int) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message
        self.status = status


class Skein(methods.Methods):
    """A server. timeout is how many seconds an answer may take."""

    def __init__(self, base: str = "http://127.0.0.1:3210", timeout: float = 30) -> None:
        self.base = base.rstrip("/")
        self.timeout = timeout

    def _open(self, nsid: str, params: Dict[str, Any], timeout: float) -> Any:
        given = []
        for name, value in params.items():
            if value is None:
                continue
            for one in [value] if isinstance(value, (str, int, bool)) else value:
                given.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
        url = f"{self.base}/xrpc/{nsid}?{urllib.parse.urlencode(given)}"
        try:
            return urllib.request.urlopen(url, timeout=timeout)
        except urllib.error.HTTPError as error:
            try:
                said = json.load(error)
            except (ValueError, *BROKEN):
                said = {}
            if not isinstance(said, dict):
                said = {}
            raise SkeinError(said.get("error", "HTTPError"), said.get("message", error.reason), error.code) from None
        except BROKEN as error:
            raise SkeinError("Unreachable", f"{self.base}: {error}", 0) from None

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        with self._open(nsid, params, self.timeout) as answer:
            try:
                return json.load(answer)
            except (ValueError, *BROKEN) as error:
                raise SkeinError("InvalidResponse", f"{self.base}: {error}", answer.status) from None

    def members(self, set_: str) -> Iterator[str]:
        """All members of a set, page after page."""
        cursor: Optional[str] = None
        while True:
            page = self.query(set_, limit=1000, cursor=cursor)
            yield from page.get("members", [])
            cursor = page.get("cursor")
            if not cursor:
                return

    def count(self, set_: str) -> int:
        """How many members a set has."""
        return self.query(set_, count=True)["total"]

    def records(self, set_: str) -> Iterator[methods.ListItem]:
        """All members of one set with the records behind them, the newest first."""
        cursor: Optional[str] = None
        while True:
            page = self.list(set_, limit=1000, cursor=cursor)
            yield from page["items"]
            cursor = page.get("cursor")
            if not cursor:
                return

    def subscribe(
        self, set_: str, cursor: Optional[str] = None, on_retry: Optional[Callable[[Exception, float], None]] = None
    ) -> Iterator[methods.SubscribeChange]:
        """What enters and leaves a set, from now on, or after a cursor. It comes back by
        itself when the connection breaks, and misses nothing, or says so (reset); on_retry
        is told why it broke, and in how many seconds it comes back."""
        wait = 0.5
        while True:
            broke: Exception = SkeinError("Unreachable", "the connection ended", 0)
            try:
                with self._open("blue.skein.graph.subscribe", {"set": set_, "cursor": cursor}, 45) as stream:
                    kind = ""
                    for line in stream:
                        text = line.decode().rstrip("\n")
                        if text.startswith("event: "):
                            kind = text[len("event: "):]
                        elif text.startswith("data: "):
                            if kind == "error":
                                break  # it is told to come back
                            change = json.loads(text[len("data: "):])
                            cursor, wait = change["cursor"], 0.5
                            yield change
            except SkeinError as error:
                if error.status == 501 or 400 <= error.status < 500 and error.status not in (408, 429):
                    raise  # it will not be better
                broke = error
            except (ValueError, *BROKEN) as error:
                broke = error
            if on_retry:
                on_retry(broke, wait)
            time.sleep(wait)
            wait = min(2 * wait, 30)
