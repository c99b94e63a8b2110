"""Prints who enters and leaves a set, as it happens, and the size of the set. Uses asyncio.

    python watch.py SET [SERVER]

SET is an expression, such as "followers(did:plc:…)".
"""

import asyncio
import os
import sys

from skein_blue import AsyncSkein, SkeinError


def retrying(error: Exception, wait: float) -> None:
    print(f"{error}; reconnecting in {wait} s", file=sys.stderr)


async def watch(set_: str, server: str) -> None:
    async with AsyncSkein(server) as skein:
        async for change in skein.subscribe(set_, on_retry=retrying):
            if change.get("reset"):
                print(f"missed some changes: {change['reset']}", file=sys.stderr)
            for did in change.get("entered", []):
                print("+", did)
            for did in change.get("left", []):
                print("-", did)
            count = await skein.count(set_)
            print(count.total, "as far as known" if count.incomplete else "in all", flush=True)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 64
    server = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("SKEIN_SERVER", "http://127.0.0.1:3210")
    try:
        asyncio.run(watch(sys.argv[1], server))
    except SkeinError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
