"""Checks what the types accept and reject, by mypy --strict. Never executed."""

from datetime import date, datetime, timedelta
from typing import List, Optional

from skein_blue import AsyncSkein, ListItem, Pages, QueryOutput, RankRanked, Relationship, Skein, SkeinError


def say(error: Exception, wait: float) -> None:
    after: Optional[float] = error.retry_after if isinstance(error, SkeinError) else None


def sync(skein: Skein) -> None:
    pages = skein.members("x")
    dids: List[str] = list(pages)
    missing: bool = pages.incomplete
    why: Optional[str] = skein.count("x").reason
    items: List[ListItem] = list(skein.records("x"))
    ranked: Pages[RankRanked] = skein.pages.rank(of="x", via="likes", since=timedelta(days=1))
    top: List[str] = [r["member"] for r in ranked.first(3)]
    skein.pages.query("x", limit=3)  # type: ignore[call-arg]  # first(3)
    for change in skein.subscribe("x", cursor="y", on_retry=say):
        dids += change.get("entered", [])
    for told in skein.watch("x", state="y"):
        dids.append(told.member)
    for r in skein.get_relationships("x", others=dids)["relationships"]:
        if r["$type"] == "app.bsky.graph.defs#relationship":
            related: Relationship = r
        else:
            dids.append(r["actor"])
    cursor: Optional[str] = skein.get_backlinks("x", "y", reverse=True)["cursor"]
    certain: str = skein.get_backlinks("x", "y")["cursor"]  # type: ignore[assignment]  # None on the last page
    skein.rank(of="x", via="likes", damp=0.5, since=datetime.now(), until=date.today(), subjects_since="1h", decay=timedelta(hours=6))
    skein.histogram("x", bucket=timedelta(hours=1))
    skein.rank(of="x", via="likes", since=0.5)  # type: ignore[arg-type]  # not a time
    skein.rank(of="x", via="likes", sicne="1h")  # type: ignore[call-arg]  # unknown parameter
    skein.known("x", "quoters", ["y"])  # of a configured kind
    skein.query("x")["totla"]  # type: ignore[typeddict-item]  # unknown field


async def asynchronous() -> None:
    async with AsyncSkein("http://x", headers={"Authorization": "x"}, token="y", retries=0) as skein:
        pages = skein.members("x")
        dids: List[str] = [did async for did in pages]
        liked: List[RankRanked] = await skein.pages.rank(of="x", via="likes").first(3)
        missing: bool = pages.incomplete
        total: int = (await skein.count("x")).total
        page: QueryOutput = await skein.query("x", limit=1)
        async for change in skein.subscribe("x"):
            dids += change.get("entered", [])
        skein.query("x")["total"]  # type: ignore[index]  # not awaited
