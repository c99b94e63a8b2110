"""Made from the lexicons by go run ./clients/generate. Do not edit."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Sequence, TypedDict, Union


class _ContainsOutput(TypedDict):
    members: List[ContainsMembership]


class ContainsOutput(_ContainsOutput, total=False):
    """Which of the given strings are members of a set."""

    incomplete: bool
    reason: str


class ContainsMembership(TypedDict):
    contained: bool
    member: str


class _GetAccountOutput(TypedDict):
    active: bool
    description: str
    desynchronized: bool
    did: str
    partial: bool
    records: Dict[str, Any]
    state: Union[Literal["complete", "partial", "desynchronized", "unknown"], str]


class GetAccountOutput(_GetAccountOutput, total=False):
    """What the index has of one account, and what it lacks."""

    queued: GetAccountQueued
    rev: str
    time: str


class _GetAccountQueued(TypedDict):
    reason: str
    since: str
    state: Union[Literal["waiting"], str]


class GetAccountQueued(_GetAccountQueued, total=False):
    """Its repo is to be fetched whole, or was given up."""

    detail: str
    failure: str


class GetStatsFailed(TypedDict):
    reason: str
    repos: int


class _GetStatsKind(TypedDict):
    collection: str
    name: str
    names: Union[Literal["did", "uri"], str]
    path: str


class GetStatsKind(_GetStatsKind, total=False):
    forward: str
    reverse: str


class _GetStatsOutput(TypedDict):
    accounts: int
    complete: int
    desynchronized: int
    engine: str
    hidden: int
    kinds: List[GetStatsKind]
    partial: int
    records: GetStatsRecords
    relay: str
    state: Union[Literal["connecting", "live", "catchingUp", "blocked", "off"], str]
    strings: GetStatsStrings
    version: str


class GetStatsOutput(_GetStatsOutput, total=False):
    """What the index holds, and how fresh it is."""

    cursor: int
    failed: List[GetStatsFailed]
    lagSeconds: int
    waiting: int


class GetStatsRecords(TypedDict):
    block: int
    follow: int
    like: int
    listblock: int
    listitem: int
    listitem_list: int
    repost: int


class GetStatsStrings(TypedDict):
    did: int
    uri: int


class KnownKnownSubject(TypedDict):
    sample: List[str]
    subject: str
    total: int


class _KnownOutput(TypedDict):
    subjects: List[KnownKnownSubject]


class KnownOutput(_KnownOutput, total=False):
    """Of the people that an actor follows: who also follows, likes or reposts each of the subjects."""

    incomplete: bool
    reason: str


class _ListItem(TypedDict):
    member: str
    record: str


class ListItem(_ListItem, total=False):
    time: str


class _ListOutput(TypedDict):
    items: List[ListItem]
    order: Union[Literal["newest", "id"], str]
    total: int
    type: Union[Literal["did", "uri"], str]


class ListOutput(_ListOutput, total=False):
    """The members of one set, each with the record that makes the edge, the newest first."""

    cursor: str
    incomplete: bool
    reason: str


class _QueryOutput(TypedDict):
    total: int
    type: Union[Literal["did", "uri"], str]


class QueryOutput(_QueryOutput, total=False):
    """The members of a set of DIDs or of AT URIs."""

    cursor: str
    incomplete: bool
    members: List[str]
    reason: str
    records: List[str]


class _RankOutput(TypedDict):
    items: List[RankRanked]
    type: Union[Literal["did", "uri"], str]


class RankOutput(_RankOutput, total=False):
    """Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result."""

    accounts: int
    cursor: str
    incomplete: bool
    of: int
    reason: str


class _RankRanked(TypedDict):
    count: int
    member: str


class RankRanked(_RankRanked, total=False):
    lift: int
    share: int
    total: int


class _SubscribeChange(TypedDict):
    cursor: str


class SubscribeChange(_SubscribeChange, total=False):
    entered: List[str]
    left: List[str]
    reset: str
    type: Union[Literal["did", "uri"], str]


class Methods:
    """The methods."""

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def contains(self, member: Sequence[str], set_: str) -> ContainsOutput:
        """Which of the given strings are members of a set."""
        answer: ContainsOutput = self._call("blue.skein.graph.contains", {"member": member, "set": set_})
        return answer

    def get_account(self, did: str) -> GetAccountOutput:
        """What the index has of one account, and what it lacks."""
        answer: GetAccountOutput = self._call("blue.skein.graph.getAccount", {"did": did})
        return answer

    def get_stats(self) -> GetStatsOutput:
        """What the index holds, and how fresh it is."""
        answer: GetStatsOutput = self._call("blue.skein.graph.getStats", {})
        return answer

    def known(self, actor: str, edge: Literal["followers", "likers", "reposters"], subject: Sequence[str], *, limit: int | None = None) -> KnownOutput:
        """Of the people that an actor follows: who also follows, likes or reposts each of the subjects."""
        answer: KnownOutput = self._call("blue.skein.graph.known", {"actor": actor, "edge": edge, "limit": limit, "subject": subject})
        return answer

    def list(self, set_: str, *, cursor: str | None = None, limit: int | None = None) -> ListOutput:
        """The members of one set, each with the record that makes the edge, the newest first."""
        answer: ListOutput = self._call("blue.skein.graph.list", {"cursor": cursor, "limit": limit, "set": set_})
        return answer

    def query(self, set_: str, *, count: bool | None = None, cursor: str | None = None, limit: int | None = None, records: bool | None = None) -> QueryOutput:
        """The members of a set of DIDs or of AT URIs."""
        answer: QueryOutput = self._call("blue.skein.graph.query", {"count": count, "cursor": cursor, "limit": limit, "records": records, "set": set_})
        return answer

    def rank(self, of: str, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks"], str], *, by: Literal["count", "share", "lift"] | None = None, cursor: str | None = None, except_: str | None = None, limit: int | None = None, min: int | None = None, since: str | None = None, subjects_since: str | None = None, until: str | None = None) -> RankOutput:
        """Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result."""
        answer: RankOutput = self._call("blue.skein.graph.rank", {"by": by, "cursor": cursor, "except": except_, "limit": limit, "min": min, "of": of, "since": since, "subjectsSince": subjects_since, "until": until, "via": via})
        return answer
