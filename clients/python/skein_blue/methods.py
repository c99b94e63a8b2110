"""Made from the lexicons by go run ./clients/generate. Do not edit."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Literal, Optional, Sequence, TypedDict, Union

__all__ = [
    "DescribeFeedGeneratorFeed",
    "DescribeFeedGeneratorOutput",
    "GetFeedSkeletonOutput",
    "GetFeedSkeletonPost",
    "NotFoundActor",
    "Relationship",
    "GetRelationshipsOutput",
    "GetBacklinkDidsOutput",
    "GetBacklinksLinkRecord",
    "GetBacklinksOutput",
    "GetBacklinksCountOutput",
    "GetManyToManyItem",
    "GetManyToManyOutput",
    "GetManyToManyCountsCount",
    "GetManyToManyCountsOutput",
    "ContainsOutput",
    "ContainsMembership",
    "GetAccountOutput",
    "GetAccountQueued",
    "GetStatsFailed",
    "GetStatsKind",
    "GetStatsOutput",
    "GetStatsRecords",
    "GetStatsStrings",
    "KnownKnownSubject",
    "KnownOutput",
    "ListItem",
    "ListOutput",
    "QueryOutput",
    "RankOutput",
    "RankRanked",
    "SubscribeChange",
]

#: The methods that a server also takes by POST, as a form.
FORMS: FrozenSet[str] = frozenset({"blue.skein.graph.contains", "blue.skein.graph.known", "blue.skein.graph.list", "blue.skein.graph.query", "blue.skein.graph.rank"})


class DescribeFeedGeneratorFeed(TypedDict):
    #: The AT URI of the feed's record.
    uri: str


class DescribeFeedGeneratorOutput(TypedDict):
    """The feeds that this server has in its --feeds file. Bluesky's method, as far as skein answers it."""

    #: The DID of the feeds' service.
    did: str
    feeds: List[DescribeFeedGeneratorFeed]


class _GetFeedSkeletonOutput(TypedDict):
    feed: List[GetFeedSkeletonPost]


class GetFeedSkeletonOutput(_GetFeedSkeletonOutput, total=False):
    """A page of a feed that this server has in its --feeds file. Bluesky's method, as far as skein answers it."""

    #: Absent on the last page.
    cursor: str


class GetFeedSkeletonPost(TypedDict):
    #: The AT URI of a post.
    post: str


_NotFoundActorType = TypedDict("_NotFoundActorType", {"$type": Literal["app.bsky.graph.defs#notFoundActor"]})


class NotFoundActor(_NotFoundActorType):
    """No account has this handle."""

    #: The handle, as given.
    actor: str
    #: Always true.
    notFound: bool


_RelationshipType = TypedDict("_RelationshipType", {"$type": Literal["app.bsky.graph.defs#relationship"]})


class _Relationship(_RelationshipType):
    did: str


class Relationship(_Relationship, total=False):
    """How the actor and one other account stand to each other. Bluesky's definition, as far as skein answers it."""

    #: The record by which this account blocks the actor.
    blockedBy: str
    #: The list by which this account blocks the actor.
    blockedByList: str
    #: The record by which the actor blocks this account.
    blocking: str
    #: The list by which the actor blocks this account.
    blockingByList: str
    #: The record by which this account follows the actor.
    followedBy: str
    #: The record by which the actor follows this account. Absent if it does not.
    following: str


class _GetRelationshipsOutput(TypedDict):
    #: The DID of the actor.
    actor: str
    #: In the order of others.
    relationships: List[Union[Relationship, NotFoundActor]]


class GetRelationshipsOutput(_GetRelationshipsOutput, total=False):
    """How one account stands to others: who follows and who blocks whom, with the records. Bluesky's method, as far as skein answers it."""

    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    #: Why it is incomplete.
    reason: str


class GetBacklinkDidsOutput(TypedDict):
    """The accounts that link to a subject, the newest link first. Constellation's method, for what this server indexes."""

    #: null on the last page.
    cursor: Optional[str]
    linking_dids: List[str]
    #: How many accounts, whatever the page.
    total: int


class GetBacklinksLinkRecord(TypedDict):
    """The record that links to the subject."""

    collection: str
    #: Whose record it is.
    did: str
    rkey: str


class GetBacklinksOutput(TypedDict):
    """The records that link to a subject, the newest first. Constellation's method, for what this server indexes."""

    #: null on the last page.
    cursor: Optional[str]
    records: List[GetBacklinksLinkRecord]
    #: How many accounts have such a record, whatever the page.
    total: int


class GetBacklinksCountOutput(TypedDict):
    """How many accounts link to a subject. Constellation's method, for what this server indexes."""

    total: int


class GetManyToManyItem(TypedDict):
    linkRecord: GetBacklinksLinkRecord
    #: What the record names at the other path.
    otherSubject: str


class GetManyToManyOutput(TypedDict):
    """The records that name a subject, each with what it names at another path. Constellation's method, for what this server indexes."""

    #: null on the last page.
    cursor: Optional[str]
    items: List[GetManyToManyItem]


class GetManyToManyCountsCount(TypedDict):
    #: How many accounts these are of.
    distinct: int
    #: What the records name at the other path.
    subject: str
    #: How many records.
    total: int


class GetManyToManyCountsOutput(TypedDict):
    """What the records that name a subject name at another path, with the number of records of each. Constellation's method, for what this server indexes."""

    counts_by_other_subject: List[GetManyToManyCountsCount]
    #: null on the last page.
    cursor: Optional[str]


class _ContainsOutput(TypedDict):
    #: In the order asked.
    members: List[ContainsMembership]


class ContainsOutput(_ContainsOutput, total=False):
    """Which of the given strings are members of a set."""

    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    #: Why it is incomplete.
    reason: str


class ContainsMembership(TypedDict):
    contained: bool
    member: str


class _GetAccountOutput(TypedDict):
    #: If not, it is in no answer.
    active: bool
    #: The same as a sentence.
    description: str
    #: Something that it did was missed.
    desynchronized: bool
    did: str
    #: What it did before the index heard of it may not be indexed.
    partial: bool
    #: How many records of it are indexed, by the kind's name (getStats).
    records: Dict[str, Any]
    #: All of its records are indexed; what it did before the index heard of it is not; something was missed; its repo waits to be fetched again; the stream had a gap, and the account has not been compared with the relay's list since; nothing is known that it did.
    state: Union[Literal["complete", "partial", "desynchronized", "queued", "unverified", "unknown"], str]


class GetAccountOutput(_GetAccountOutput, total=False):
    """What the index has of one account, and what it lacks."""

    queued: GetAccountQueued
    #: Of its last commit that is indexed.
    rev: str
    #: What rev says.
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
    #: In records, and in metrics.
    name: str
    #: What stands there.
    names: Union[Literal["did", "uri"], str]
    #: Where in the record that stands which the edge goes to.
    path: str


class GetStatsKind(_GetStatsKind, total=False):
    #: The set of what an account names. Absent if it has no name in expressions.
    forward: str
    #: The set of who names it.
    reverse: str


class _GetStatsOutput(TypedDict):
    accounts: int
    #: Repos whose records are all in the index, as far as is known.
    complete: int
    #: Repos of which something was missed.
    desynchronized: int
    engine: str
    #: Accounts that are not active.
    hidden: int
    #: What is indexed: that which is built in, and that which the store is configured with.
    kinds: List[GetStatsKind]
    #: Repos whose past was never seen.
    partial: int
    records: GetStatsRecords
    relay: str
    #: What the consumer is doing: there is no connection to the relay; all that the relay sent is in the index, or nearly; it is being caught up with; the relay said that our cursor lies in its future, and an operator must decide; this process only answers.
    state: Union[Literal["connecting", "live", "catchingUp", "blocked", "off"], str]
    strings: GetStatsStrings
    version: str


class GetStatsOutput(_GetStatsOutput, total=False):
    """What the index holds, and how fresh it is."""

    #: The last sequence number of the relay that is committed. Absent before the first event.
    cursor: int
    #: Repos that were queued and have been given up.
    failed: List[GetStatsFailed]
    #: Active accounts of which something is missing or in doubt.
    incomplete: int
    #: The age of that event; where the stream is idle and all of it is committed, the time since the relay last proved that it is alive. Absent before the first event, and where state is off.
    lagSeconds: int
    #: Repos that are queued to be fetched whole. Absent where none is fetched.
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
    #: Exact, whatever the limit.
    total: int


class _KnownOutput(TypedDict):
    #: In the order asked.
    subjects: List[KnownKnownSubject]


class KnownOutput(_KnownOutput, total=False):
    """Of the people that an actor follows: who also follows, likes or reposts each of the subjects."""

    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    #: Why it is incomplete.
    reason: str


class _ListItem(TypedDict):
    member: str
    #: Of several, the first after the subject, as their keys say; if none is, the last before it.
    record: str


class ListItem(_ListItem, total=False):
    #: That the record's key says; absent if it says none.
    time: str


class _ListOutput(TypedDict):
    items: List[ListItem]
    #: newest: by the records' times, the newest first. id: of more than 10,000 who have an edge to a subject, or 200,000 subjects, by no time, but stably.
    order: Union[Literal["newest", "id"], str]
    #: Exact, whatever the page.
    total: int
    type: Union[Literal["did", "uri"], str]


class ListOutput(_ListOutput, total=False):
    """The members of one set, each with the record that makes the edge, the newest first."""

    #: Absent on the last page.
    cursor: str
    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    #: Why it is incomplete.
    reason: str


class _QueryOutput(TypedDict):
    #: Exact, whatever the page.
    total: int
    type: Union[Literal["did", "uri"], str]


class QueryOutput(_QueryOutput, total=False):
    """The members of a set of DIDs or of AT URIs."""

    #: Absent on the last page.
    cursor: str
    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    members: List[str]
    #: Why it is incomplete.
    reason: str
    #: With records=true: by member, the record that makes the edge; of several the first after the subject, as their keys say.
    records: List[str]


class _RankOutput(TypedDict):
    items: List[RankRanked]
    type: Union[Literal["did", "uri"], str]


class RankOutput(_RankOutput, total=False):
    """Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result."""

    #: By share or lift: how many accounts there are.
    accounts: int
    #: Absent on the last page.
    cursor: str
    #: Something may be missing in the answer: absent if all that it rests on is indexed.
    incomplete: bool
    #: By share or lift: how many accounts the set has.
    of: int
    #: Why it is incomplete.
    reason: str


class _RankRanked(TypedDict):
    count: int
    member: str


class RankRanked(_RankRanked, total=False):
    #: By lift: (count / of) / (total / accounts), how many times as many as chance would give, in millionths.
    lift: int
    #: By share: count / total, in millionths.
    share: int
    #: By share or lift: how many have an edge to it in all, at any time.
    total: int


class _SubscribeChange(TypedDict):
    cursor: str


class SubscribeChange(_SubscribeChange, total=False):
    entered: List[str]
    left: List[str]
    #: Why the set is to be asked for anew: the cursor is too old, too much has changed at once, or the subscriptions of the client cost too much to work out.
    reset: str
    #: Of the first message: what the set is of.
    type: Union[Literal["did", "uri"], str]


class Methods:
    """The methods of a server."""

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def describe_feed_generator(self) -> DescribeFeedGeneratorOutput:
        """The feeds that this server has in its --feeds file. Bluesky's method, as far as skein answers it."""
        answer: DescribeFeedGeneratorOutput = self._call("app.bsky.feed.describeFeedGenerator", {})
        return answer

    def get_feed_skeleton(self, feed: str, *, cursor: str | None = None, limit: int | None = None) -> GetFeedSkeletonOutput:
        """A page of a feed that this server has in its --feeds file. Bluesky's method, as far as skein answers it.

        feed: The AT URI of the feed's record.
        cursor: From the page before, for the same feed.
        """
        answer: GetFeedSkeletonOutput = self._call("app.bsky.feed.getFeedSkeleton", {"feed": feed, "cursor": cursor, "limit": limit})
        return answer

    def get_relationships(self, actor: str, *, others: Sequence[str] | None = None) -> GetRelationshipsOutput:
        """How one account stands to others: who follows and who blocks whom, with the records. Bluesky's method, as far as skein answers it.

        actor: A DID or a handle.
        others: DIDs or handles.
        """
        answer: GetRelationshipsOutput = self._call("app.bsky.graph.getRelationships", {"actor": actor, "others": others})
        return answer

    def get_backlink_dids(self, subject: str, source: str, *, cursor: str | None = None, limit: int | None = None) -> GetBacklinkDidsOutput:
        """The accounts that link to a subject, the newest link first. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: From the page before, for the same question.
        limit: 0: only the total.
        """
        answer: GetBacklinkDidsOutput = self._call("blue.microcosm.links.getBacklinkDids", {"subject": subject, "source": source, "cursor": cursor, "limit": limit})
        return answer

    def get_backlinks(self, subject: str, source: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, reverse: bool | None = None) -> GetBacklinksOutput:
        """The records that link to a subject, the newest first. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: From the page before, for the same question.
        did: Only the records of these accounts.
        limit: 0: only the total.
        reverse: The oldest first.
        """
        answer: GetBacklinksOutput = self._call("blue.microcosm.links.getBacklinks", {"subject": subject, "source": source, "cursor": cursor, "did": did, "limit": limit, "reverse": reverse})
        return answer

    def get_backlinks_count(self, subject: str, source: str) -> GetBacklinksCountOutput:
        """How many accounts link to a subject. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        """
        answer: GetBacklinksCountOutput = self._call("blue.microcosm.links.getBacklinksCount", {"subject": subject, "source": source})
        return answer

    def get_many_to_many(self, subject: str, source: str, path_to_other: str, *, cursor: str | None = None, limit: int | None = None, link_did: Sequence[str] | None = None, other_subject: Sequence[str] | None = None) -> GetManyToManyOutput:
        """The records that name a subject, each with what it names at another path. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        path_to_other: The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject.
        cursor: From the page before, for the same question.
        link_did: Only the records of these accounts.
        other_subject: Only these, at the other path.
        """
        answer: GetManyToManyOutput = self._call("blue.microcosm.links.getManyToMany", {"subject": subject, "source": source, "pathToOther": path_to_other, "cursor": cursor, "limit": limit, "linkDid": link_did, "otherSubject": other_subject})
        return answer

    def get_many_to_many_counts(self, subject: str, source: str, path_to_other: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, other_subject: Sequence[str] | None = None) -> GetManyToManyCountsOutput:
        """What the records that name a subject name at another path, with the number of records of each. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        path_to_other: The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject.
        cursor: From the page before, for the same question.
        did: Only the records of these accounts.
        other_subject: Only these, at the other path.
        """
        answer: GetManyToManyCountsOutput = self._call("blue.microcosm.links.getManyToManyCounts", {"subject": subject, "source": source, "pathToOther": path_to_other, "cursor": cursor, "did": did, "limit": limit, "otherSubject": other_subject})
        return answer

    def contains(self, set_: str, member: Sequence[str]) -> ContainsOutput:
        """Which of the given strings are members of a set.

        set_: A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. $viewer stands for the DID of who asks, by a service auth token.
        member: DIDs or AT URIs, of the type of the set.
        """
        answer: ContainsOutput = self._call("blue.skein.graph.contains", {"set": set_, "member": member})
        return answer

    def get_account(self, did: str) -> GetAccountOutput:
        """What the index has of one account, and what it lacks.

        did: A DID, or a handle with an @ before it. $viewer stands for the DID of who asks, by a service auth token.
        """
        answer: GetAccountOutput = self._call("blue.skein.graph.getAccount", {"did": did})
        return answer

    def get_stats(self) -> GetStatsOutput:
        """What the index holds, and how fresh it is."""
        answer: GetStatsOutput = self._call("blue.skein.graph.getStats", {})
        return answer

    def known(self, actor: str, edge: Literal["followers", "likers", "reposters"], subject: Sequence[str], *, limit: int | None = None) -> KnownOutput:
        """Of the people that an actor follows: who also follows, likes or reposts each of the subjects.

        actor: $viewer stands for the DID of who asks, by a service auth token.
        subject: DIDs for sets of DIDs such as followers, AT URIs for others such as likers.
        limit: How many of them are named, for each subject.
        """
        answer: KnownOutput = self._call("blue.skein.graph.known", {"actor": actor, "edge": edge, "subject": subject, "limit": limit})
        return answer

    def list(self, set_: str, *, cursor: str | None = None, limit: int | None = None) -> ListOutput:
        """The members of one set, each with the record that makes the edge, the newest first.

        set_: One leaf, such as likers(at://…) or follows(did:plc:…, since=7d). $viewer stands for the DID of who asks, by a service auth token.
        cursor: From the page before, for the same set.
        """
        answer: ListOutput = self._call("blue.skein.graph.list", {"set": set_, "cursor": cursor, "limit": limit})
        return answer

    def query(self, set_: str, *, count: bool | None = None, cursor: str | None = None, limit: int | None = None, records: bool | None = None) -> QueryOutput:
        """The members of a set of DIDs or of AT URIs.

        set_: A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. A leaf takes a window of the times of the records: likes(did:plc:…, since=24h), until=2026-11-22T06:00:00Z, since=2026-11-01. $viewer stands for the DID of who asks, by a service auth token.
        count: Only the total: no members, no cursor.
        cursor: From the page before, for the same set.
        records: With each member the record that makes the edge. Only of a set that is one leaf.
        """
        answer: QueryOutput = self._call("blue.skein.graph.query", {"set": set_, "count": count, "cursor": cursor, "limit": limit, "records": records})
        return answer

    def rank(self, of: str, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks"], str], *, by: Literal["count", "share", "lift"] | None = None, cursor: str | None = None, except_: str | None = None, limit: int | None = None, min: int | None = None, since: str | None = None, subjects_since: str | None = None, until: str | None = None) -> RankOutput:
        """Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result.

        of: An expression of a set of DIDs. $viewer stands for the DID of who asks, by a service auth token.
        via: A set of an account: one of these, or one that the store is configured with.
        by: What is ranked by: how many of the set have an edge to the result; which share they are of all who have one; or how many times as many as chance would give. Of more than 20,000 results those with the highest counts are scored.
        cursor: From the page before. Pages are of the index as it is then: a result whose place changes meanwhile may come twice, or not.
        except_: An expression of a set, of the type of the results, that are left out.
        min: The lowest count of a result: 1, and by share or lift 5, unless it is given.
        since: Go only along records whose keys say a time from then on: RFC 3339, a date, or an age such as 24h or 7d.
        subjects_since: Of results that are records, those whose keys say a time from then on.
        until: And before then.
        """
        answer: RankOutput = self._call("blue.skein.graph.rank", {"of": of, "via": via, "by": by, "cursor": cursor, "except": except_, "limit": limit, "min": min, "since": since, "subjectsSince": subjects_since, "until": until})
        return answer


class AsyncMethods:
    """The methods of a server, to await."""

    async def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    async def describe_feed_generator(self) -> DescribeFeedGeneratorOutput:
        """The feeds that this server has in its --feeds file. Bluesky's method, as far as skein answers it."""
        answer: DescribeFeedGeneratorOutput = await self._call("app.bsky.feed.describeFeedGenerator", {})
        return answer

    async def get_feed_skeleton(self, feed: str, *, cursor: str | None = None, limit: int | None = None) -> GetFeedSkeletonOutput:
        """A page of a feed that this server has in its --feeds file. Bluesky's method, as far as skein answers it.

        feed: The AT URI of the feed's record.
        cursor: From the page before, for the same feed.
        """
        answer: GetFeedSkeletonOutput = await self._call("app.bsky.feed.getFeedSkeleton", {"feed": feed, "cursor": cursor, "limit": limit})
        return answer

    async def get_relationships(self, actor: str, *, others: Sequence[str] | None = None) -> GetRelationshipsOutput:
        """How one account stands to others: who follows and who blocks whom, with the records. Bluesky's method, as far as skein answers it.

        actor: A DID or a handle.
        others: DIDs or handles.
        """
        answer: GetRelationshipsOutput = await self._call("app.bsky.graph.getRelationships", {"actor": actor, "others": others})
        return answer

    async def get_backlink_dids(self, subject: str, source: str, *, cursor: str | None = None, limit: int | None = None) -> GetBacklinkDidsOutput:
        """The accounts that link to a subject, the newest link first. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: From the page before, for the same question.
        limit: 0: only the total.
        """
        answer: GetBacklinkDidsOutput = await self._call("blue.microcosm.links.getBacklinkDids", {"subject": subject, "source": source, "cursor": cursor, "limit": limit})
        return answer

    async def get_backlinks(self, subject: str, source: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, reverse: bool | None = None) -> GetBacklinksOutput:
        """The records that link to a subject, the newest first. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: From the page before, for the same question.
        did: Only the records of these accounts.
        limit: 0: only the total.
        reverse: The oldest first.
        """
        answer: GetBacklinksOutput = await self._call("blue.microcosm.links.getBacklinks", {"subject": subject, "source": source, "cursor": cursor, "did": did, "limit": limit, "reverse": reverse})
        return answer

    async def get_backlinks_count(self, subject: str, source: str) -> GetBacklinksCountOutput:
        """How many accounts link to a subject. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        """
        answer: GetBacklinksCountOutput = await self._call("blue.microcosm.links.getBacklinksCount", {"subject": subject, "source": source})
        return answer

    async def get_many_to_many(self, subject: str, source: str, path_to_other: str, *, cursor: str | None = None, limit: int | None = None, link_did: Sequence[str] | None = None, other_subject: Sequence[str] | None = None) -> GetManyToManyOutput:
        """The records that name a subject, each with what it names at another path. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        path_to_other: The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject.
        cursor: From the page before, for the same question.
        link_did: Only the records of these accounts.
        other_subject: Only these, at the other path.
        """
        answer: GetManyToManyOutput = await self._call("blue.microcosm.links.getManyToMany", {"subject": subject, "source": source, "pathToOther": path_to_other, "cursor": cursor, "limit": limit, "linkDid": link_did, "otherSubject": other_subject})
        return answer

    async def get_many_to_many_counts(self, subject: str, source: str, path_to_other: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, other_subject: Sequence[str] | None = None) -> GetManyToManyCountsOutput:
        """What the records that name a subject name at another path, with the number of records of each. Constellation's method, for what this server indexes.

        subject: A DID or an AT URI, that of what is linked to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        path_to_other: The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject.
        cursor: From the page before, for the same question.
        did: Only the records of these accounts.
        other_subject: Only these, at the other path.
        """
        answer: GetManyToManyCountsOutput = await self._call("blue.microcosm.links.getManyToManyCounts", {"subject": subject, "source": source, "pathToOther": path_to_other, "cursor": cursor, "did": did, "limit": limit, "otherSubject": other_subject})
        return answer

    async def contains(self, set_: str, member: Sequence[str]) -> ContainsOutput:
        """Which of the given strings are members of a set.

        set_: A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. $viewer stands for the DID of who asks, by a service auth token.
        member: DIDs or AT URIs, of the type of the set.
        """
        answer: ContainsOutput = await self._call("blue.skein.graph.contains", {"set": set_, "member": member})
        return answer

    async def get_account(self, did: str) -> GetAccountOutput:
        """What the index has of one account, and what it lacks.

        did: A DID, or a handle with an @ before it. $viewer stands for the DID of who asks, by a service auth token.
        """
        answer: GetAccountOutput = await self._call("blue.skein.graph.getAccount", {"did": did})
        return answer

    async def get_stats(self) -> GetStatsOutput:
        """What the index holds, and how fresh it is."""
        answer: GetStatsOutput = await self._call("blue.skein.graph.getStats", {})
        return answer

    async def known(self, actor: str, edge: Literal["followers", "likers", "reposters"], subject: Sequence[str], *, limit: int | None = None) -> KnownOutput:
        """Of the people that an actor follows: who also follows, likes or reposts each of the subjects.

        actor: $viewer stands for the DID of who asks, by a service auth token.
        subject: DIDs for sets of DIDs such as followers, AT URIs for others such as likers.
        limit: How many of them are named, for each subject.
        """
        answer: KnownOutput = await self._call("blue.skein.graph.known", {"actor": actor, "edge": edge, "subject": subject, "limit": limit})
        return answer

    async def list(self, set_: str, *, cursor: str | None = None, limit: int | None = None) -> ListOutput:
        """The members of one set, each with the record that makes the edge, the newest first.

        set_: One leaf, such as likers(at://…) or follows(did:plc:…, since=7d). $viewer stands for the DID of who asks, by a service auth token.
        cursor: From the page before, for the same set.
        """
        answer: ListOutput = await self._call("blue.skein.graph.list", {"set": set_, "cursor": cursor, "limit": limit})
        return answer

    async def query(self, set_: str, *, count: bool | None = None, cursor: str | None = None, limit: int | None = None, records: bool | None = None) -> QueryOutput:
        """The members of a set of DIDs or of AT URIs.

        set_: A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. A leaf takes a window of the times of the records: likes(did:plc:…, since=24h), until=2026-11-22T06:00:00Z, since=2026-11-01. $viewer stands for the DID of who asks, by a service auth token.
        count: Only the total: no members, no cursor.
        cursor: From the page before, for the same set.
        records: With each member the record that makes the edge. Only of a set that is one leaf.
        """
        answer: QueryOutput = await self._call("blue.skein.graph.query", {"set": set_, "count": count, "cursor": cursor, "limit": limit, "records": records})
        return answer

    async def rank(self, of: str, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks"], str], *, by: Literal["count", "share", "lift"] | None = None, cursor: str | None = None, except_: str | None = None, limit: int | None = None, min: int | None = None, since: str | None = None, subjects_since: str | None = None, until: str | None = None) -> RankOutput:
        """Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result.

        of: An expression of a set of DIDs. $viewer stands for the DID of who asks, by a service auth token.
        via: A set of an account: one of these, or one that the store is configured with.
        by: What is ranked by: how many of the set have an edge to the result; which share they are of all who have one; or how many times as many as chance would give. Of more than 20,000 results those with the highest counts are scored.
        cursor: From the page before. Pages are of the index as it is then: a result whose place changes meanwhile may come twice, or not.
        except_: An expression of a set, of the type of the results, that are left out.
        min: The lowest count of a result: 1, and by share or lift 5, unless it is given.
        since: Go only along records whose keys say a time from then on: RFC 3339, a date, or an age such as 24h or 7d.
        subjects_since: Of results that are records, those whose keys say a time from then on.
        until: And before then.
        """
        answer: RankOutput = await self._call("blue.skein.graph.rank", {"of": of, "via": via, "by": by, "cursor": cursor, "except": except_, "limit": limit, "min": min, "since": since, "subjectsSince": subjects_since, "until": until})
        return answer
