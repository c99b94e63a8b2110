"""python test_skein.py SERVER ACCOUNT-THAT-MANY-FOLLOW: the client, against a running server."""

import http.server
import itertools
import sys
import threading

from skein import Skein, SkeinError


def refused(call) -> SkeinError:
    try:
        call()
    except SkeinError as error:
        return error
    raise AssertionError("it is answered")


class Stranger(http.server.BaseHTTPRequestHandler):
    """What is no skein, or breaks off."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def answer(self, status: int, body: bytes, length: int = -1) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def do_GET(self) -> None:
        Stranger.asked += 1
        for of, how in {"html": (200, b"<html>hello"), "cut": (200, b'{"total":', 100), "text": (502, b'"bad"'), "none": (501, b'{"error":"MethodNotImplemented"}')}.items():
            if f"set={of}" in self.path:
                return self.answer(*how)
        if Stranger.asked % 3 == 1:
            return self.answer(429, b'{"error":"RateLimitExceeded"}')
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b'40\r\ndata: {"cursor":"1","entered":["did:plc:x"]}\n\n')
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def strangers() -> None:
    """What is no answer of a skein is an error with a name; a subscription comes back where
    that may help, and ends where it does not."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    skein = Skein(f"http://127.0.0.1:{server.server_port}")
    for of, name in {"html": "InvalidResponse", "cut": "InvalidResponse", "text": "HTTPError", "none": "MethodNotImplemented"}.items():
        assert refused(lambda: skein.query(of)).name == name, of
    assert refused(lambda: next(skein.subscribe("none"))).status == 501
    Stranger.asked, retries = 0, []
    told = list(itertools.islice(skein.subscribe("x", on_retry=lambda error, wait: retries.append((error, wait))), 3))
    assert len(told) == 3 and len(retries) == 4, retries
    server.shutdown()


def main() -> None:
    strangers()
    base, star = sys.argv[1:3]
    skein = Skein(base)
    of = f"followers({star})"
    members = list(skein.members(of))
    assert len(members) > 100 and len(set(members)) == len(members), len(members)
    assert skein.count(of) >= len(members)
    records = list(itertools.islice(skein.records(of), 1500))
    assert all("/app.bsky.graph.follow/" in r["record"] for r in records)
    contained = skein.contains([members[0], star], of)["members"]
    assert [c["contained"] for c in contained] == [True, False], contained
    assert len(skein.rank(of, "likes", since="24h", limit=3)["items"]) == 3
    assert skein.get_account(star)["state"] == "complete"
    assert skein.get_stats()["records"]["follow"] > 1000
    assert skein.query(of, count=True).get("members") is None
    error = refused(lambda: skein.query("folowers(x)"))
    assert error.name == "InvalidRequest" and error.status == 400 and "did you mean followers" in error.message
    refused(lambda: next(skein.subscribe("nothing(x)")))
    assert refused(lambda: Skein("http://127.0.0.1:1").count(of)).name == "Unreachable"
    cursor, changes = None, 0
    for _ in range(2):
        for change in skein.subscribe(f"except({of}, members({star}))", cursor):
            assert not change.get("reset"), change
            cursor = change["cursor"]
            changes += len(change.get("entered", []))
            if change.get("entered"):
                break
    assert changes >= 2
    print(f"Python: {len(members)} members, {len(records)} records, {changes} changes")


main()
