"""python -m tests.live SERVER ACCOUNT LIST FEEDS: tests both clients against running servers.
ACCOUNT must have many followers, LIST members, and the server FEEDS a feed without a viewer."""

import itertools
import json
import os
import shutil
import sys
import tempfile
import urllib.request
import warnings
from datetime import datetime, timedelta
from typing import Any, Callable, Dict, Set

from skein_blue import Skein, SkeinError, methods

from .both import CLIENTS


def refused(call: Callable[[], Any]) -> SkeinError:
    try:
        call()
    except SkeinError as error:
        return error
    raise AssertionError("the server accepted it")


def check(client: Any, base: str, star: str, list_uri: str, feeds: str) -> str:
    called: Set[str] = set()

    class Noting:
        def __init__(self, server: str, prefix: str = "", methods: Any = None) -> None:
            self.prefix, self.skein = prefix, methods or client(server)

        def __getattr__(self, name: str) -> Any:
            called.add(self.prefix + name)
            found = getattr(self.skein, name)
            return Noting("", "pages.", found) if name == "pages" else found

    skein = Noting(base)
    of = f"followers({star})"
    members = list(skein.members(of))
    assert len(members) > 100 and len(set(members)) == len(members), len(members)
    left = 5  # people of the demo also unfollow, at most this many during the test
    assert skein.count(of).total >= len(members) - left
    records = list(itertools.islice(skein.records(of), 1500))
    assert all("/app.bsky.graph.follow/" in r["record"] for r in records)
    contained = skein.contains(of, [members[0], star])["members"]
    assert [c["contained"] for c in contained] == [True, False], contained
    assert skein.query(of, count=True).get("members") is None
    assert len(skein.list(of, limit=3)["items"]) == 3
    largest = skein.list(f"sample({of}, 40)", order="size(followers)", limit=10)
    assert largest["order"] == "size(followers)" and largest["total"] == 40, largest
    assert [m["size"] for m in largest["items"]] == sorted((m["size"] for m in largest["items"]), reverse=True), largest
    assert len(skein.rank(of=of, via="likes", since=timedelta(hours=24), until=datetime.now() + timedelta(hours=1), damp=0.5, limit=3)["items"]) == 3
    assert len(skein.rank(set_=f"blend(2, rank(of={of}, via=likes), 0.5, rank(of={of}, via=reposts))", limit=3)["items"]) == 3
    ranked = skein.pages.rank(of=of, via="likes")
    assert len({r["member"] for r in ranked.first(1200)}) > 1000 and ranked.page["type"] == "uri"
    assert skein.pages.query(of).first(3) == members[:3]
    oldest = skein.pages.list(of, order="oldest").first(1200)
    assert [r["time"] for r in oldest] == sorted(r["time"] for r in oldest) and len(oldest) > 100
    sizes = skein.counts(["followers", "likes"], [star])["subjects"][0]
    assert sizes["subject"] == star and len(sizes["totals"]) == 2 and sizes["totals"][0] >= len(members) - left, sizes
    times = skein.histogram(of, bucket="1d")
    counted = sum(b["count"] for b in times["buckets"]) + sum(times.get(k, 0) for k in ("earlier", "later", "undated"))
    assert times["bucketSeconds"] == 86400 and counted == times["total"] >= len(members) - left, times
    blocked = skein.get_blocks(star, "blockedBy", limit=100)
    assert blocked["total"] >= len(blocked["blocks"]) and all(b.get("record") or b["lists"] for b in blocked["blocks"]), blocked
    assert len(list(skein.pages.get_blocks(star, "blockedBy"))) >= blocked["total"] - left
    assert skein.known(members[0], "followers", [star])["subjects"][0]["subject"] == star
    shared = skein.overlap([f"members({star}, {members[0]})", f"members({star})"], with_=f"members({members[0]})")
    assert shared["totals"] == [2, 1, 1] and shared["pairs"] == [[2, 1, 1], [1, 1, 0], [1, 0, 1]], shared
    assert skein.path(members[0], star, max=1)["path"] == [members[0], star]
    assert "reads no labelers" in str(refused(lambda: skein.labels([star])))
    for lookup in (lambda: skein.query_labels(["*"]), lambda: next(skein.pages.query_labels(["*"]))):
        assert "reads no labelers" in str(refused(lookup))
    assert skein.get_account(star)["state"] == "complete"
    assert skein.get_stats()["records"]["follow"] > 1000

    # All accounts are known here, so an unknown one has no sets, and nothing is incomplete.
    nobody = "follows(did:plc:neverseenaaaaaaaaaaaaaaa)"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        count, pages = skein.count(nobody), skein.members(nobody)
        assert list(pages) == []
    assert count.total == 0 and not count.incomplete and not pages.incomplete and not warned, (count, warned)

    # A query that is too long for a URL. The server's OpenAPI description lists POST methods.
    with urllib.request.urlopen(f"{base}/openapi.json") as description:
        takes_post = "post" in json.load(description)["paths"]["/xrpc/blue.skein.graph.query"]
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    strangers = [f"did:plc:{x * 12}{y * 12}" for x in letters for y in letters]  # more than a page, with the members
    everybody = sorted({*members, *strangers, star})
    long = f"members({','.join(everybody)})"
    assert len(long) > 8 << 10
    if takes_post:
        assert skein.count(long).total == len(everybody)
        assert sorted(skein.members(f"except({long}, members({star}))")) == [did for did in everybody if did != star]
        assert len(members) - left <= skein.count(f"intersect({long}, {of})").total <= len(members)
    else:
        assert refused(lambda: skein.count(long)).name == "PostNotSupported"

    # The methods of Bluesky and Constellation.
    related, unknown = skein.get_relationships(star, others=[members[0], "nobody.test"])["relationships"]
    assert related["$type"] == "app.bsky.graph.defs#relationship" and related["followedBy"].startswith(f"at://{members[0]}/"), related
    assert unknown["$type"] == "app.bsky.graph.defs#notFoundActor" and unknown["notFound"], unknown
    follow = "app.bsky.graph.follow:subject"
    links = skein.get_backlinks(star, follow, limit=10)
    assert len(links["records"]) == 10 and links["total"] >= len(members) - left and links["cursor"]
    assert len(skein.pages.get_backlinks(star, follow).first(120)) == len(skein.pages.get_backlink_dids(star, follow).first(120)) == 120
    assert skein.get_backlinks(star, follow, did=[members[0]])["total"] == 1
    assert len(skein.get_backlink_dids(star, follow, limit=10)["linking_dids"]) == 10
    assert skein.get_backlinks_count(star, follow)["total"] >= len(members) - left
    with_feeds = Noting(feeds)
    feed = with_feeds.describe_feed_generator()["feeds"][0]["uri"]
    page = with_feeds.get_feed_skeleton(feed, limit=1)
    assert page["feed"][0]["post"].startswith("at://") and page["cursor"], page
    posts = list(with_feeds.pages.get_feed_skeleton(feed))
    assert posts[0] == page["feed"][0] and len(posts) > 2, len(posts)
    assert refused(lambda: skein.describe_feed_generator()).name == "MethodNotImplemented"

    error = refused(lambda: skein.query("folowers(x)"))
    assert error.name == "InvalidRequest" and error.status == 400 and "did you mean followers" in error.message
    refused(lambda: next(skein.subscribe("nothing(x)")))

    # A changing set: a reconnection with the cursor misses nothing.
    cursor, changes = None, 0
    for _ in range(2):
        for change in skein.subscribe(f"except({of}, members({star}))", cursor):
            assert not change.get("reset"), change
            cursor = change["cursor"]
            changes += len(change.get("entered", []))
            if change.get("entered"):
                break
    assert changes >= 2

    # A watch reports changes that were made while it did not run.
    folder = tempfile.mkdtemp()
    state, later = os.path.join(folder, "state"), os.path.join(folder, "later")
    assert next(skein.watch(of, state)).member  # it begins, and ends with the first change
    with open(state, encoding="utf-8") as file:
        place = json.load(file)
    assert place["pending"]
    place.update(cursor="old-1", pending=[], members=["did:web:gone.example.com"] + place["members"][1:])
    with open(later, "w", encoding="utf-8") as file:
        json.dump(place, file)
    told = skein.watch(of, later)
    first, second = next(told), next(told)
    assert (first.type, first.member, second.type) == ("left", "did:web:gone.example.com", "entered"), (first, second)
    try:
        next(skein.watch("followers(x)", state))
        raise AssertionError("the state of another set is used")
    except ValueError as error:
        assert "another set" in str(error)
    uncalled = {prefix + name for prefix, of in (("", methods.Methods), ("pages.", methods.PagedMethods)) for name in vars(of) if not name.startswith("_")} - called
    assert not uncalled, f"add a call of {sorted(uncalled)} to this test"
    for noting in (skein, with_feeds):
        noting.shut()
    del told
    shutil.rmtree(folder)
    return f"{len(members)} members, {len(records)} records, {changes} changes, {len(called)} methods, {'POST' if takes_post else 'a server without POST'}"


if __name__ == "__main__":
    for name, client in CLIENTS.items():
        print(f"Python, {name}: {check(client, *sys.argv[1:])}")
