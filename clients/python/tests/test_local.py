"""Tests the clients against small local servers: python -m unittest, in clients/python."""

import asyncio
import concurrent.futures
import email.utils
import http.server
import inspect
import itertools
import json
import os
import socket
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.parse
import warnings
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Tuple

from skein_blue import AsyncSkein, IncompleteWarning, Skein, SkeinError, core, methods

from .both import CLIENTS

REASON = "records of did:plc:a from before the index first saw it are missing"
MISSING = {"incomplete": True, "reason": REASON}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.answer(self, urllib.parse.urlparse(self.path).query)  # type: ignore[attr-defined]

    do_CONNECT = do_GET

    def do_POST(self) -> None:
        self.server.answer(self, self.rfile.read(int(self.headers["Content-Length"])).decode())  # type: ignore[attr-defined]

    def send(self, status: int, body: bytes, length: int = -1, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length != -2:
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.wfile.write(body)
        if length != -1:
            self.close_connection = True

    def json(self, status: int, body: Any) -> None:
        self.send(status, json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


class Case(unittest.TestCase):
    """Tests both clients against a server that calls answer(handler, parameters)."""

    def serve(self, answer: Callable[[Handler, Dict[str, List[str]]], None]) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.answer = lambda handler, text: answer(handler, urllib.parse.parse_qs(text))  # type: ignore[attr-defined]
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client is gone
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self.addCleanup(stop)
        return f"http://127.0.0.1:{server.server_port}"

    def each(self, base: str, **options: Any) -> Iterator[Any]:
        for client in CLIENTS.values():
            skein = client(base, **options)
            self.addCleanup(skein.shut)
            yield skein

    def refused(self, call: Callable[[], Any]) -> SkeinError:
        with self.assertRaises(SkeinError) as caught:
            call()
        return caught.exception


class Incomplete(Case):
    """Every answer that may be incomplete has the flag and the reason, and issues a warning."""

    def setUp(self) -> None:
        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            method = handler.path.split("?")[0].rsplit(".", 1)[1]
            if method == "query" and "count" in params:
                return handler.json(200, {"type": "did", "total": 3, **MISSING})
            second = "cursor" in params
            page: Dict[str, Any] = {"type": "did", "total": 3, **(MISSING if second else {}), **({} if second else {"cursor": "2"})}
            if method == "query":
                return handler.json(200, {**page, "members": ["c"] if second else ["a", "b"]})
            if method == "list":
                return handler.json(200, {**page, "order": "newest", "items": [{"member": m, "record": "r"} for m in ("c" if second else "ab")]})
            if method == "getStats":
                return handler.json(200, {"incomplete": 5})
            return handler.json(200, {"items": [], "subjects": [], "members": [], "type": "did", **MISSING})

        self.base = self.serve(answer)

    def test_count(self) -> None:
        for skein in self.each(self.base):
            with self.assertWarns(IncompleteWarning) as warned:
                count = skein.count("followers(did:plc:a)")
            self.assertEqual((count.total, count.incomplete, count.reason), (3, True, REASON))
            self.assertIn(REASON, str(warned.warning))

    def test_pages(self) -> None:
        for skein in self.each(self.base):
            for walk, name in ((skein.members, str), (skein.records, lambda r: r["member"])):
                pages = walk("followers(did:plc:a)")
                self.assertEqual((pages.total, pages.incomplete), (None, False))
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    self.assertEqual([name(next(pages)), name(next(pages))], ["a", "b"])
                self.assertEqual((pages.total, pages.incomplete, pages.reason), (3, False, None))
                with self.assertWarns(IncompleteWarning):
                    self.assertEqual([name(item) for item in pages], ["c"])
                self.assertEqual((pages.total, pages.incomplete, pages.reason), (3, True, REASON))

    def test_methods(self) -> None:
        for skein in self.each(self.base):
            for call in (
                lambda: skein.rank(of="follows(did:plc:a)", via="likes"),
                lambda: skein.known("did:plc:a", "followers", ["did:plc:b"]),
                lambda: skein.contains("follows(did:plc:a)", ["did:plc:b"]),
            ):
                with self.assertWarns(IncompleteWarning):
                    self.assertEqual(call()["reason"], REASON)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(skein.get_stats()["incomplete"], 5)  # a number of accounts

    def test_warns_at_the_callers_line(self) -> None:
        with self.assertWarns(IncompleteWarning) as warned:
            Skein(self.base).count("x")
        self.assertEqual(warned.filename, __file__)

        async def ask() -> None:
            async with AsyncSkein(self.base) as skein:
                await skein.count("x")

        with self.assertWarns(IncompleteWarning) as warned:
            asyncio.run(ask())
        self.assertEqual(warned.filename, __file__)


class Post(Case):
    """A query that is too long for a URL uses POST."""

    def serve_and_note(self, takes_post: bool) -> Tuple[str, List[Tuple[str, str, str, Dict[str, List[str]]]]]:
        noted: List[Tuple[str, str, str, Dict[str, List[str]]]] = []

        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            noted.append((handler.command, handler.path.split("?")[0], handler.headers.get("Content-Type", ""), params))
            if handler.command == "POST" and not takes_post:
                return handler.json(405, {"error": "InvalidRequest", "message": "use GET"})
            return handler.json(200, {"total": 0, "type": "did", "items": [], "subjects": [], "members": [], "relationships": []})

        return self.serve(answer), noted

    def test_long_queries(self) -> None:
        base, noted = self.serve_and_note(True)
        many = [f"did:plc:{i:024}" for i in range(1000)]
        long = f"members({','.join(many)})"
        for skein in self.each(base, headers={"Authorization": "Bearer x"}):
            for nsid, call, params in (
                ("blue.skein.graph.query", lambda: skein.query(long, count=True), {"set": [long], "count": ["true"]}),
                ("blue.skein.graph.list", lambda: skein.list(long), {"set": [long]}),
                ("blue.skein.graph.rank", lambda: skein.rank(of=long, via="likes", except_="x"), {"of": [long], "via": ["likes"], "except": ["x"]}),
                ("blue.skein.graph.contains", lambda: skein.contains("x", many), {"set": ["x"], "member": many}),
                ("blue.skein.graph.known", lambda: skein.known("x", "followers", many), {"actor": ["x"], "edge": ["followers"], "subject": many}),
            ):
                noted.clear()
                call()
                self.assertEqual(noted, [("POST", f"/xrpc/{nsid}", "application/x-www-form-urlencoded", params)])
            noted.clear()
            skein.count(long)
            list(skein.members(long))
            self.assertEqual([n[0] for n in noted], ["POST", "POST"])
            noted.clear()
            skein.get_relationships("x", others=many)  # accepts no form
            skein.query("x")
            self.assertEqual([n[0] for n in noted], ["GET", "GET"])

    def test_bound(self) -> None:
        """7 KiB of parameters still fit in a URL; one byte more makes a form."""
        base, noted = self.serve_and_note(True)
        fits = "x" * (core.LONGEST_QUERY - len("set="))
        for skein in self.each(base):
            noted.clear()
            skein.query(fits)
            skein.query(fits + "x")
            self.assertEqual([n[0] for n in noted], ["GET", "POST"])

    def test_older_server(self) -> None:
        base, _ = self.serve_and_note(False)
        for skein in self.each(base):
            error = self.refused(lambda: skein.query("x" * 9000))
            self.assertEqual((error.name, error.status), ("PostNotSupported", 405))
            self.assertIn("upgrade the server", error.message)


class Values(Case):
    """Numbers, times and lengths of time are sent as the server spells them."""

    def test_values(self) -> None:
        noted: List[Dict[str, List[str]]] = []

        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            noted.append(params)
            handler.json(200, {"items": []})

        local = datetime(2026, 11, 22, 6)
        for skein in self.each(self.serve(answer)):
            for given, sent in (
                ({"damp": 0.5}, {"damp": ["0.5"]}),
                ({"damp": 1, "exact": True}, {"damp": ["1"], "exact": ["true"]}),
                ({"damp": Decimal("0.3"), "min": 3}, {"damp": ["0.3"], "min": ["3"]}),
                ({"since": datetime(2026, 11, 22, 6, 0, 0, 1, timezone(timedelta(hours=2)))}, {"since": ["2026-11-22T04:00:00.000001+00:00"]}),
                ({"until": local}, {"until": [local.astimezone(timezone.utc).isoformat()]}),
                ({"since": date(2026, 11, 22), "until": "24h"}, {"since": ["2026-11-22"], "until": ["24h"]}),
                ({"subjects_since": timedelta(days=1), "decay": timedelta(hours=6)}, {"subjectsSince": ["86400.000000s"], "decay": ["21600.000000s"]}),
            ):
                noted.clear()
                skein.rank(of="x", via="likes", **given)
                self.assertEqual(noted, [{"of": ["x"], "via": ["likes"], **sent}])


class Strangers(Case):
    """An answer that does not come from a skein is an error with a name. A subscription
    reconnects if that may help, and ends if it cannot."""

    asked = 0

    def setUp(self) -> None:
        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            self.asked += 1
            of = params.get("set", [""])[0]
            if of == "html":
                return handler.send(200, b"<html>hello")
            if of == "list":
                return handler.send(200, b"[]")
            if of == "cut":
                return handler.send(200, b'{"total":', 100)
            if of == "cut error":
                return handler.send(503, b'{"error":', 100)
            if of == "text":
                return handler.send(502, b'"bad"')
            if of == "none":
                return handler.json(501, {"error": "MethodNotImplemented"})
            if of == "slow":
                return handler.send(200, b': begin\n\nevent: error\ndata: {"error":"ConsumerTooSlow","message":"too slow"}\n\n', -2, Content_Type="text/event-stream")
            if of == "no change":
                return handler.send(200, b'data: {"entered":[]}\n\n', -2, Content_Type="text/event-stream")
            if self.asked % 3 == 1:
                return handler.json(429, {"error": "RateLimitExceeded"})
            return handler.send(200, b'data: {"cursor":"%d","entered":["did:plc:x"]}\n\ndata: {"cur' % self.asked, -2, Content_Type="text/event-stream")

        self.base = self.serve(answer)
        for name, value in {"FIRST_WAIT": 0.001, "_longer": lambda seconds: seconds}.items():
            soon = unittest.mock.patch.object(core, name, value)
            soon.start()
            self.addCleanup(soon.stop)

    def test_errors(self) -> None:
        for skein in self.each(self.base):
            for of, name in {"html": "InvalidResponse", "list": "InvalidResponse", "cut": "InvalidResponse", "cut error": "HTTPError", "text": "HTTPError", "none": "MethodNotImplemented"}.items():
                self.assertEqual(self.refused(lambda: skein.query(of)).name, name, of)
        for skein in self.each("http://127.0.0.1:1"):
            self.assertEqual(self.refused(lambda: skein.count("x")).name, "Unreachable")
        for client in CLIENTS.values():
            self.assertRaisesRegex(ValueError, "does not start with http://", client, "127.0.0.1:3210")

    def test_subscribe(self) -> None:
        for skein in self.each(self.base):
            self.asked, retries = 0, []
            changes = list(itertools.islice(skein.subscribe("x", on_retry=lambda error, wait: retries.append((error.name, wait))), 3))
            self.assertEqual([c["cursor"] for c in changes], ["2", "3", "5"])
            self.assertEqual(retries, [("RateLimitExceeded", 0.001), ("Unreachable", 0.001), ("Unreachable", 0.001), ("RateLimitExceeded", 0.002)])

    def test_retry_after(self) -> None:
        changes = core.Changes(self.base, "x", None, None)
        self.assertEqual([changes.retry(SkeinError("Busy", "", 503, after)) for after in (7, None)], [7, 0.002])

    def test_watch_compares_again(self) -> None:
        """A watch whose comparison fails reconnects with the cursor before."""

        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            if "subscribe" not in handler.path:
                status, *members = script.pop(0)
                return handler.json(status, {"type": "did", "total": len(members), "members": members})
            cursors.append(params.get("cursor", [""])[0])
            gap = b'data: {"cursor":"2","reset":"gap"}\n\n'
            return handler.send(200, gap if cursors[-1] else b'data: {"cursor":"1"}\n\n' + gap, -2, Content_Type="text/event-stream")

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for skein in self.each(self.serve(answer), retries=0):
            state = os.path.join(folder.name, type(skein).__name__)
            script: List[Any] = [(500,), (200, "a"), (503,), (200, "a"), (200, "a"), (200, "b"), (502,), (200, "b"), (200, "b")]
            cursors: List[str] = []
            retried: List[int] = []
            told = skein.watch("x", state, on_retry=lambda error, wait: retried.append(error.status))
            self.assertEqual([next(told), next(told)], [core.WatchChange("left", "a"), core.WatchChange("entered", "b")])
            self.assertEqual((cursors, retried, script), (["", "", "", "1"], [500, 503, 502], []))
            for more in ([(200, *["c"] * 50_001)], [(200,), (200, *map(str, range(50_001)))]):
                script += more
                self.assertRaises(ValueError, lambda: next(skein.watch("x", state + "2")))

    def test_subscribe_ends(self) -> None:
        for skein in self.each(self.base):
            self.assertEqual(self.refused(lambda: next(skein.subscribe("none"))).status, 501)

    def test_on_retry_gets_the_error(self) -> None:
        """on_retry receives the error that ended a connection, with its name."""

        class Enough(Exception):
            pass

        for of, name in {"slow": "ConsumerTooSlow", "html": "InvalidResponse", "no change": "InvalidResponse"}.items():
            for skein in self.each(self.base):
                def stop(error: Exception, wait: float) -> None:
                    self.assertEqual(getattr(error, "name", None), name)
                    raise Enough

                self.assertRaises(Enough, lambda: next(skein.subscribe(of, on_retry=stop)))


class Again(Case):
    """A call is repeated if that may help, over connections that stay open."""

    def setUp(self) -> None:
        self.script: List[Any] = []
        self.asked: List[Tuple[str, Any, Dict[str, List[str]]]] = []
        self.waits: List[float] = []
        self.gone = threading.Event()

        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            self.asked.append((handler.headers.get("Authorization", handler.headers.get("Proxy-Authorization", "")), handler.client_address, params))
            step = self.script.pop(0) if self.script else 200
            late = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"total":-1}'
            if step == "hang":
                self.gone.wait(9)
                handler.wfile.write(late)
            elif step == "half":
                handler.send(200, b"", len(late))
                self.gone.wait(9)
                handler.wfile.write(late)
            elif step == "drop":
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
            elif step == "cut":
                handler.send(200, b'{"total":', 100)
            elif step == "html":
                handler.send(200, b"<html>")
            elif step == "used":
                handler.json(401, {"error": "JwtReplayed"})
            elif step == "last":
                handler.json(200, {"total": 1})
                handler.close_connection = True  # without saying so
            elif isinstance(step, str):
                handler.send(302, b"", Location=step)
            elif isinstance(step, tuple):
                handler.send(step[0], b"{}", Retry_After=step[1])
            else:
                handler.json(step, {"total": int(params["set"][0])} if params.get("set", ["x"])[0].isdecimal() else {"total": 1})

        self.base = self.serve(answer)
        wait = core.wait

        def noted(*args: Any) -> float:
            self.waits.append(wait(*args))
            return 0

        patched = unittest.mock.patch.object(core, "wait", noted)
        patched.start()
        self.addCleanup(patched.stop)

    def begin(self, *script: Any) -> None:
        self.script, self.asked, self.waits = list(script), [], []

    def test_repeats(self) -> None:
        date = email.utils.formatdate(time.time() + 50, usegmt=True)
        for script, waits in (
            ([(429, "7"), (503, date), "drop"], [7, 50, 2]),
            (["cut", "drop", (503, "0")], [0.5, 1, 2]),
            ([503, (429, "soon"), (503, "60")], [0.5, 1, 60]),
        ):
            for skein in self.each(self.base):
                for method in (skein.count, lambda set_: skein.count(set_ + " " * 9000)):  # by POST, which only reads, too
                    self.begin(*script)
                    self.assertEqual(method("x").total, 1)
                    self.assertEqual(len(self.asked), 4)
                    for waited, least in zip(self.waits, waits):
                        self.assertTrue(least - 30 * (least == 50) <= waited <= 1.5 * least, (self.waits, waits))

    def test_ends(self) -> None:
        for script, asked, name, after in (
            ([(503, "1")] * 9, 4, "HTTPError", 1),
            (["drop"] * 9, 4, "Unreachable", None),
            (["cut"] * 9, 4, "InvalidResponse", None),
            ([(429, "61")], 1, "HTTPError", 61),
            ([(400, "1")], 1, "HTTPError", 1),
            ([504], 1, "HTTPError", None),
            (["html"], 1, "InvalidResponse", None),
            (["used"], 1, "JwtReplayed", None),
            ([(503, "1"), "used"], 2, "HTTPError", 1),  # a token for one request
        ):
            for skein in self.each(self.base):
                self.begin(*script)
                error = self.refused(lambda: skein.count("x"))
                self.assertEqual((error.name, error.retry_after, len(self.asked)), (name, after, asked), script[0])
                self.script = []
                self.assertEqual(skein.count("5").total, 5)
        for step, name in (("hang", "Unreachable"), ("half", "InvalidResponse")):
            for skein in self.each(self.base):
                self.begin(200, step)
                self.gone.clear()
                skein.count("x")
                getattr(skein, "_skein", skein).timeout = 0.1
                self.assertEqual(self.refused(lambda: skein.count("x")).name, name)
                self.assertEqual(len(self.asked), 2)
                self.gone.set()
                getattr(skein, "_skein", skein).timeout = 30
                self.assertEqual(skein.count("5").total, 5)  # not the answer to the call before
        for skein in self.each(self.base, retries=0):
            self.begin("drop", (503, "1"))
            self.refused(lambda: skein.count("x"))
            self.refused(lambda: skein.count("x"))
            self.assertEqual(len(self.asked), 2)

    def test_one_connection(self) -> None:
        for skein in self.each(self.base):
            self.begin(200, (400, "1"), 200)
            skein.count("x")
            self.refused(lambda: skein.count("x"))
            skein.count("x")
            self.assertEqual(len({address for _, address, _ in self.asked}), 1)
            self.begin("last")
            skein.count("x")
            self.assertEqual(skein.count("3").total, 3)
            if isinstance(skein, Skein):
                self.assertEqual(self.waits, [])
        with Skein(self.base) as shared, concurrent.futures.ThreadPoolExecutor(8) as threads:
            self.begin()
            self.assertEqual(list(threads.map(lambda n: shared.count(str(n)).total, range(200))), list(range(200)))
            self.assertLess(len({address for _, address, _ in self.asked}), 9)

    def test_proxy(self) -> None:
        with unittest.mock.patch.dict("os.environ", {"http_proxy": self.base}):
            clients = list(self.each("http://skein.invalid"))
        for skein in clients:
            self.begin("drop")
            self.assertEqual(skein.count("5").total, 5)
        with unittest.mock.patch.dict("os.environ", {"https_proxy": self.base.replace("//", "//a:b@")}):
            clients = list(self.each("https://skein.invalid", retries=0, token="skein_x"))
        for skein in clients:
            self.begin(502)
            self.assertEqual(self.refused(lambda: skein.count("x")).name, "Unreachable")
            self.assertEqual([authorization for authorization, *_ in self.asked], ["Basic YTpi"])

    def test_token(self) -> None:
        own: List[Any] = []
        other = self.serve(lambda handler, params: (own.append(handler.headers), handler.json(200, {"total": 2}))[1])
        for skein in self.each(self.base, token="skein_x"):
            self.begin(f"{other}/elsewhere")
            self.assertEqual(skein.count("x").total, 2)
            self.assertEqual([authorization for authorization, *_ in self.asked], ["Bearer skein_x"])
        for skein in self.each(other, token="skein_x", headers={"authorization": "Bearer jwt"}):
            skein.count("x")
        self.assertEqual([(h.get("Authorization"), h.get("Skein-Token")) for h in own], [(None, None)] * 2 + [("Bearer jwt", "skein_x")] * 2)


class Paged(Case):
    """Methods with a cursor iterate over their pages."""

    def test_pages(self) -> None:
        asked: List[Tuple[str, int]] = []

        def answer(handler: Handler, params: Dict[str, List[str]]) -> None:
            method, limit, begin = handler.path.split("?")[0].rsplit(".", 1)[1], int(params["limit"][0]), int(params.get("cursor", ["0"])[0])
            asked.append((method, limit))
            end = min(begin + min(limit, 40), 100)
            field = {"query": "members", "getBlocks": "blocks", "getBacklinks": "records", "getBacklinkDids": "linking_dids", "getFeedSkeleton": "feed", "queryLabels": "labels"}.get(method, "items")
            handler.json(200, {field: list(range(begin, end)), "handles": {f"e{end}": params.get("names")}, **({"total": 100} if method != "rank" else {}), "cursor": str(end) if end < 100 else None})

        cases = {
            "query": (1000, ["x"]), "list": (1000, ["x"]), "rank": (1000, []), "get_blocks": (100, ["x", "blocking"]), "query_labels": (250, [["x"]]),
            "get_backlinks": (1000, ["x", "y"]), "get_backlink_dids": (1000, ["x", "y"]), "get_feed_skeleton": (100, ["x"]),
        }
        self.assertEqual({name for name in vars(methods.PagedMethods) if name[0] != "_"}, set(cases))
        for skein in self.each(self.serve(answer)):
            for method, (most, args) in cases.items():
                asked.clear()
                pages = getattr(skein.pages, method)(*args)
                self.assertEqual(pages.first(45), list(range(45)))
                self.assertEqual([limit for _, limit in asked], [45, 5])
                self.assertEqual((next(pages), pages.page["handles"], pages.total), (45, {"e85": None}, None if method == "rank" else 100))
                self.assertEqual(list(pages), list(range(46, 100)))
                self.assertEqual([limit for _, limit in asked[2:]], [most] * 2)
                self.assertEqual((pages.first(3), pages.first(0)), ([], []))
            self.assertEqual(skein.members("x").first(3), [0, 1, 2])
            named = skein.members("x", names=True)
            named.first(45)
            self.assertEqual(named.handles, {"e40": ["true"], "e45": ["true"]})


class Surface(unittest.TestCase):
    def test_same(self) -> None:
        """Both clients have the same methods with the same parameters."""

        def surface(of: type) -> Dict[str, Any]:
            return {name: inspect.signature(f).parameters for name, f in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

        sync, asynchronous = surface(Skein), surface(AsyncSkein)
        self.assertEqual(sync, asynchronous)
        self.assertEqual(surface(methods.PagedMethods), surface(methods.AsyncPagedMethods))
        self.assertGreater(len(sync), len(methods.FORMS))


if __name__ == "__main__":
    unittest.main()
