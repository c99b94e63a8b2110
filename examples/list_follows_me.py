"""Prints which members of a list follow an account, and since when.

    python list_follows_me.py LIST ACCOUNT [SERVER]

LIST is an AT URI or a bsky.app address; ACCOUNT is a DID, or a handle with an @.
"""

import os
import sys
import warnings

from skein_blue import IncompleteWarning, Skein, SkeinError


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 64
    members, account = sys.argv[1:3]
    warnings.simplefilter("ignore", IncompleteWarning)  # the reason is printed below
    skein = Skein(sys.argv[3] if len(sys.argv) > 3 else os.environ.get("SKEIN_SERVER", "http://127.0.0.1:3210"))
    try:
        listed = skein.count(f"listed({members})")
        both = skein.members(f"intersect(listed({members}), followers({account}))")
        found = set(both)
        since = {r["member"]: r.get("time", "?") for r in skein.records(f"followers({account})") if r["member"] in found}
    except SkeinError as error:
        print(error, file=sys.stderr)
        return 1
    for did in sorted(found, key=lambda d: since.get(d, "")):
        print(did, "since", since.get(did, "?"))
    print(f"{len(found)} of {listed.total} on the list", file=sys.stderr)
    for answer in (listed, both):
        if answer.incomplete:
            print(f"There may be more: {answer.reason}", file=sys.stderr)
            break
    return 0


if __name__ == "__main__":
    sys.exit(main())
