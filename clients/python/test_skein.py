"""python test_skein.py SERVER ACCOUNT-THAT-MANY-FOLLOW: the client, against a running server."""

import itertools
import sys

from skein import Skein, SkeinError


def refused(call) -> SkeinError:
    try:
        call()
    except SkeinError as error:
        return error
    raise AssertionError("it is answered")


def main() -> None:
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
