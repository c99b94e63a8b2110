"""Runs the questions of docs/analysis.md on an export, and compares them with naive answers, which
are computed from the sets that the index answers with.

    compare.py DOCUMENT EXPORT API TRUTH
"""

import collections
import itertools
import json
import math
import os
import re
import sys
import urllib.parse
import urllib.request

import duckdb

document, export, api, truth = sys.argv[1:]
text = open(document).read()
dids = sorted(json.load(open(truth))["accounts"])
blocks = {name: (kind, body) for kind, name, body in re.findall(r"```(sql|python)\n(?:--|#) question: (\w+)\n(.*?)```", text, re.S)}
assert len(re.findall(r"^### \d+\.", text, re.M)) == 10 and len(blocks) == 13, sorted(blocks)


def members(expression):
    """All members of a set."""
    found, cursor = [], None
    while True:
        parameters = {"set": expression, "limit": 1000} | ({"cursor": cursor} if cursor else {})
        with urllib.request.urlopen(f"{api}/xrpc/blue.skein.graph.query?{urllib.parse.urlencode(parameters)}") as answer:
            page = json.load(answer)
        found += page["members"]
        if not (cursor := page.get("cursor")):
            return found


follows = {d: set(members(f"follows({d})")) for d in dids}
likes = {d: set(members(f"likes({d})")) for d in dids}
edges = {(a, b) for a, of in follows.items() for b in of}
followers = collections.defaultdict(set)
for a, b in edges:
    followers[b].add(a)
likers = collections.defaultdict(set)
for a, of in likes.items():
    for uri in of:
        likers[uri].add(a)
neighbours = collections.defaultdict(set)
for a, b in edges:
    if a != b:
        neighbours[a].add(b)
        neighbours[b].add(a)
seed = max(dids, key=lambda d: (len(follows[d]), d))
assert len(edges) > 100 and len(likers) > 50 and len(follows[seed]) > 5


def components():
    left, sizes = {d for e in edges for d in e}, []
    while left:
        todo, seen = [left.pop()], set()
        while todo:
            d = todo.pop()
            if d not in seen:
                seen.add(d)
                todo += neighbours[d]
        left -= seen
        sizes.append(len(seen))
    return sorted(sizes, reverse=True)


def pagerank():
    inside = {seed} | follows[seed] | {c for b in follows[seed] for c in follows.get(b, ())}
    links = {d: follows.get(d, set()) & inside for d in inside}
    rank = dict.fromkeys(inside, 1 / len(inside))
    for _ in range(20):
        loose = sum(rank[d] for d in inside if not links[d])
        following = dict.fromkeys(inside, (0.15 + 0.85 * loose) / len(inside))
        for d in inside:
            for b in links[d]:
                following[b] += 0.85 * rank[d] / len(links[d])
        rank = following
    return sorted(rank.items(), key=lambda r: (-r[1], r[0]))


def similar():
    mine = followers[seed]
    found = [(d, len(of & mine) / len(of | mine)) for d, of in followers.items() if d != seed and of & mine]
    return sorted(found, key=lambda r: (-r[1], r[0]))


def reach():
    total, others = collections.Counter(), collections.Counter()
    for uri, of in likers.items():
        author = uri.split("/")[2]
        total[author] += len(of)
        others[author] += len(of - followers.get(author, set()))
    return sorted(((d, n, others[d]) for d, n in total.items()), key=lambda r: (-r[1], r[0]))


def clustering():
    pairs = [pair for d in list(neighbours) for pair in itertools.combinations(sorted(neighbours[d]), 2)]
    return [(sum(b in neighbours[a] for a, b in pairs) / len(pairs),)]


def growth():
    """The method list answers with the time of each record."""
    counts = collections.defaultdict(lambda: [0, set()])
    for d in dids:
        cursor = None
        while True:
            parameters = {"set": f"follows({d})", "limit": 1000} | ({"cursor": cursor} if cursor else {})
            with urllib.request.urlopen(f"{api}/xrpc/blue.skein.graph.list?{urllib.parse.urlencode(parameters)}") as answer:
                page = json.load(answer)
            for item in page["items"]:
                hour = item["time"][:13]
                counts[hour][0] += 1
                counts[hour][1].add(d)
            if not (cursor := page.get("cursor")):
                break
    return sorted((hour, n, len(of)) for hour, (n, of) in counts.items())


expected = {
    "degrees": sorted(collections.Counter(map(len, followers.values())).items()),
    "reciprocity": [(sum((b, a) in edges for a, b in edges) / len(edges),)],
    "components": [(n,) for n in components()],
    "pagerank": pagerank(),
    "growth": growth(),
    "popular": sorted(((uri, len(of)) for uri, of in likers.items()), key=lambda r: (-r[1], r[0])),
    "similar": similar(),
    "reach": reach(),
    "clustering": clustering(),
    "polars": sorted(((d, len(of)) for d, of in followers.items()), key=lambda r: (-r[1], r[0])),
    "networkx": components(),
    "scipy": [n for n in components() if n > 1],
}
pairs = collections.Counter(pair for of in likes.values() for pair in itertools.combinations(sorted(of), 2))
expected["colikes"] = sorted(((*pair, n) for pair, n in pairs.items() if n > 1), key=lambda r: (-r[2], r))

os.chdir(export)
db = duckdb.connect()
db.execute("SET TimeZone = 'UTC'")
db.execute(open("views.sql").read())
uris = dict(db.execute("SELECT id, uri FROM uri_texts").fetchall())


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


failed = 0
for name, (kind, body) in sorted(blocks.items()):
    if kind == "sql":
        got = db.execute(body.replace("did:plc:…", seed)).fetchall()
    else:
        scope = {}
        exec(body, scope)
        got = scope["answer"]
    want = expected[name]
    if name == "growth":
        got = [(hour.strftime("%Y-%m-%dT%H"), *rest) for hour, *rest in got]
    if name == "colikes":  # ids have another order than their texts
        got = sorted(((*sorted((uris[a], uris[b])), n) for a, b, n in got), key=lambda r: (-r[2], r))
    if name in ("pagerank", "similar"):  # equal numbers may differ in the last digit
        got, want = sorted(got), sorted(want)
    if len(want) == 0 or not same(got, want):
        failed += 1
        print(f"{name}: {[r for r in got if r not in want][:9]}\n   want {[r for r in want if r not in got][:9]}", file=sys.stderr)
    else:
        print(f"{name}: {len(want)} rows, as expected")
sys.exit(1 if failed else 0)
