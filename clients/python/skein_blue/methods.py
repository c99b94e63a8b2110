"""Generated from the lexicons by go run ./.ci/generate. Do not edit."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Literal, Optional, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from .aio import AsyncPages
    from .sync import Pages

__all__ = [
    "Interaction",
    "SkeletonReasonPin",
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
    "ContainsOutput",
    "ContainsMembership",
    "CountsCountedSubject",
    "CountsOutput",
    "Around",
    "Missing",
    "Roster",
    "GetAccountOutput",
    "GetAccountQueued",
    "GetBlocksBlock",
    "GetBlocksList",
    "GetBlocksOutput",
    "GetStatsAudited",
    "GetStatsFailed",
    "GetStatsKind",
    "GetStatsLabeler",
    "GetStatsOutput",
    "GetStatsRecords",
    "GetStatsStrings",
    "HistogramBucket",
    "HistogramOutput",
    "KnownKnownSubject",
    "KnownOutput",
    "LabelsLabel",
    "LabelsOutput",
    "ListItem",
    "ListOutput",
    "OverlapOutput",
    "OverlapRow",
    "PathOutput",
    "QueryOutput",
    "RankOutput",
    "RankRanked",
    "SubscribeChange",
    "QueryLabelsOutput",
]

#: A time. A datetime without a time zone is in the local one; a timedelta is an age.
Time = Union[str, date, timedelta]
#: A length of time.
Duration = Union[str, timedelta]
#: A number, not only a whole one.
Number = Union[str, float]

#: The methods that a server also accepts as a form, by POST.
FORMS: FrozenSet[str] = frozenset({"blue.skein.graph.contains", "blue.skein.graph.counts", "blue.skein.graph.getBlocks", "blue.skein.graph.histogram", "blue.skein.graph.known", "blue.skein.graph.list", "blue.skein.graph.overlap", "blue.skein.graph.query", "blue.skein.graph.rank"})


class _Interaction(TypedDict):
    pass


class Interaction(_Interaction, total=False):
    """An act of a viewer on a post of a feed. This is Bluesky's definition, in part."""

    #: Other events are ignored.
    event: Union[Literal["app.bsky.feed.defs#interactionSeen"], str]
    #: The AT URI of the post.
    item: str


_SkeletonReasonPinType = TypedDict("_SkeletonReasonPinType", {"$type": Literal["app.bsky.feed.defs#skeletonReasonPin"]})


class SkeletonReasonPin(_SkeletonReasonPinType):
    """The feed pins the post. This is Bluesky's definition."""



class DescribeFeedGeneratorFeed(TypedDict):
    #: The AT URI of the feed's record.
    uri: str


class DescribeFeedGeneratorOutput(TypedDict):
    """Lists the feeds in the server's --feeds file. This is Bluesky's method, in part."""

    #: The DID of the feed generator service.
    did: str
    feeds: List[DescribeFeedGeneratorFeed]


class _GetFeedSkeletonOutput(TypedDict):
    feed: List[GetFeedSkeletonPost]


class GetFeedSkeletonOutput(_GetFeedSkeletonOutput, total=False):
    """Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part."""

    #: Absent on the last page.
    cursor: str


class _GetFeedSkeletonPost(TypedDict):
    #: The AT URI of a post.
    post: str


class GetFeedSkeletonPost(_GetFeedSkeletonPost, total=False):
    #: Absent, unless the feed pins the post.
    reason: Union[SkeletonReasonPin]


_NotFoundActorType = TypedDict("_NotFoundActorType", {"$type": Literal["app.bsky.graph.defs#notFoundActor"]})


class NotFoundActor(_NotFoundActorType):
    """No account has this handle."""

    #: The handle in the query.
    actor: str
    #: Always true.
    notFound: bool


_RelationshipType = TypedDict("_RelationshipType", {"$type": Literal["app.bsky.graph.defs#relationship"]})


class _Relationship(_RelationshipType):
    did: str


class Relationship(_Relationship, total=False):
    """The relationship between the actor and another account. This is Bluesky's definition, in part."""

    #: This account's block of the actor.
    blockedBy: str
    #: A list that has the actor on it and that this account blocks.
    blockedByList: str
    #: The actor's block of this account.
    blocking: str
    #: A list that has this account on it and that the actor blocks.
    blockingByList: str
    #: This account's follow of the actor.
    followedBy: str
    #: The actor's follow of this account. Absent if there is none.
    following: str


class _GetRelationshipsOutput(TypedDict):
    #: The DID of the actor.
    actor: str
    #: One for each of others, in the same order.
    relationships: List[Union[Relationship, NotFoundActor]]


class GetRelationshipsOutput(_GetRelationshipsOutput, total=False):
    """Returns the follows and blocks between an account and others, with the records. This is Bluesky's method, in part."""

    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str


class GetBacklinkDidsOutput(TypedDict):
    """Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes."""

    #: null on the last page.
    cursor: Optional[str]
    linking_dids: List[str]
    #: The number of accounts on all pages.
    total: int


class GetBacklinksLinkRecord(TypedDict):
    """The record that links to the subject."""

    collection: str
    #: The author of the record.
    did: str
    rkey: str


class GetBacklinksOutput(TypedDict):
    """Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes."""

    #: null on the last page.
    cursor: Optional[str]
    records: List[GetBacklinksLinkRecord]
    #: The number of accounts with such a record, on all pages; in a collection that the server added, of records, unless more than 10,000 accounts have one.
    total: int


class GetBacklinksCountOutput(TypedDict):
    """Counts the accounts that link to a subject. In a collection that the server added, it counts their records, unless more than 10,000 accounts have one. This is Constellation's method, for the collections that this server indexes."""

    total: int


class _ContainsOutput(TypedDict):
    #: In the order of the query.
    members: List[ContainsMembership]


class ContainsOutput(_ContainsOutput, total=False):
    """Tells for each of the given strings whether it is a member of a set. Does A follow B? set=follows(A), member=B."""

    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read, for each ranking or list that it sampled.
    sample: str
    #: True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read.
    sampled: bool


class ContainsMembership(TypedDict):
    contained: bool
    member: str


class CountsCountedSubject(TypedDict):
    subject: str
    #: The exact numbers of members, in the order of the sets in the query. Inactive accounts do not count.
    totals: List[int]


class _CountsOutput(TypedDict):
    #: In the order of the query.
    subjects: List[CountsCountedSubject]


class CountsOutput(_CountsOutput, total=False):
    """Counts the members of several sets of each subject, such as the likers, reposters and quoters of a hundred posts."""

    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str


class _Around(TypedDict):
    centers: List[str]
    hops: int
    #: The number of accounts.
    members: int


class Around(_Around, total=False):
    """The part of the network that is indexed: the members' records, and of everybody else those that name a center or its records."""

    lists: List[str]
    #: When the part was given these centers.
    since: str


class Missing(TypedDict):
    """The evidence that an answer lacks."""

    #: Accounts whose records may be missing.
    accounts: int
    #: Labelers whose labels may be missing.
    labelers: int
    #: Lists of accounts that are missing: 1 if no list of all accounts is valid, else the number of hosts that could not be listed.
    roster: int


class _Roster(TypedDict):
    #: When reading the list began.
    asOf: str
    #: repos: the lists of all hosts of the relay. stream: the stream from its first event. archive, followed by an address.
    source: str


class Roster(_Roster, total=False):
    """A list of all accounts of the network. All of them are indexed, or in the resync queue."""

    #: Hosts whose lists could not be read.
    unlisted: List[str]


class _GetAccountOutput(TypedDict):
    #: If false, no answer contains the account.
    active: bool
    #: The state as a sentence.
    description: str
    #: Events of the account were missed.
    desynchronized: bool
    did: str
    #: Records from before the index first saw it may be missing.
    partial: bool
    #: The number of its indexed records, by the name of the kind (getStats).
    records: Dict[str, Any]
    #: complete: all of its records are indexed. partial: records from before the index first saw it are missing. desynchronized: events were missed. queued: its repo waits to be refetched. unwritten: nothing of it is indexed at present, because a writer of the index has stopped. unverified: the stream had a gap, and the account has not been compared with the relay's list since. unknown: none of its records are indexed.
    state: Union[Literal["complete", "partial", "desynchronized", "queued", "unwritten", "unverified", "unknown"], str]


class GetAccountOutput(_GetAccountOutput, total=False):
    """Describes an account in the index, and says in state whether all of its records are there, or what may be missing."""

    queued: GetAccountQueued
    #: The rev of its last indexed commit.
    rev: str
    #: The time in rev.
    time: str


class _GetAccountQueued(TypedDict):
    reason: str
    since: str
    state: Union[Literal["waiting"], str]


class GetAccountQueued(_GetAccountQueued, total=False):
    """Its repo waits to be fetched whole, or was given up."""

    detail: str
    failure: str


class _GetBlocksBlock(TypedDict):
    #: The other account.
    did: str


class GetBlocksBlock(_GetBlocksBlock, total=False):
    #: The lists through which one account blocks the other.
    lists: List[GetBlocksList]
    #: True if there are more than 20 such lists; the others are left out.
    moreLists: bool
    #: The app.bsky.graph.block record, if one account blocks the other directly.
    record: str
    #: The time in the key of that record, absent if the key has none.
    time: str


class _GetBlocksList(TypedDict):
    #: The list that the blocking account blocks and the blocked account is on.
    list: str
    #: The app.bsky.graph.listblock record.
    listBlock: str
    #: The app.bsky.graph.listitem record.
    listItem: str


class GetBlocksList(_GetBlocksList, total=False):
    #: The time in the key of that record, absent if the key has none.
    listBlockTime: str
    #: The time in the key of that record, absent if the key has none.
    listItemTime: str


class _GetBlocksOutput(TypedDict):
    #: The DID of the actor.
    actor: str
    #: With others, those of them that block or are blocked, in the same order.
    blocks: List[GetBlocksBlock]


class GetBlocksOutput(_GetBlocksOutput, total=False):
    """Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others."""

    #: Absent on the last page.
    cursor: str
    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read.
    sample: str
    #: True if there are so many blocks by lists that only a sample was read. The answer is then incomplete.
    sampled: bool
    #: The number of accounts on all pages, exact unless the answer is sampled. Absent with others.
    total: int


class GetStatsAudited(TypedDict):
    """How many random repos this server has compared with their hosts since it started. Absent if it compares none."""

    #: Records that the index and the host did not have alike at the same revision.
    differences: int
    records: int
    repos: int


class GetStatsFailed(TypedDict):
    reason: str
    repos: int


class _GetStatsKind(TypedDict):
    collection: str
    #: The name in records and in metrics.
    name: str
    #: The type of the subject: an account, an AT URI, any URI, or any string.
    names: Union[Literal["did", "uri", "link", "text"], str]
    #: The path of the subject in the record.
    path: str


class GetStatsKind(_GetStatsKind, total=False):
    #: The set of the subjects of an account. Absent if expressions have no such set.
    forward: str
    #: The set of the records that name a subject. Absent if expressions have no such set.
    records: str
    #: The set of the accounts that name a subject.
    reverse: str


class _GetStatsLabeler(TypedDict):
    #: Whether all labels that it has are indexed, as far as is known.
    current: bool
    #: The sequence number of the labeler's last message that is indexed.
    cursor: int
    did: str


class GetStatsLabeler(_GetStatsLabeler, total=False):
    #: Why labels may be missing.
    reason: str


class _GetStatsOutput(TypedDict):
    accounts: int
    #: Accounts with full history: all of their records are in the index, as far as is known.
    complete: int
    #: Repos with missed events.
    desynchronized: int
    engine: str
    #: Accounts that are not active.
    hidden: int
    #: The indexed kinds of records, built-in and configured.
    kinds: List[GetStatsKind]
    #: Repos whose history is not indexed.
    partial: int
    records: GetStatsRecords
    relay: str
    #: The state of the consumer. connecting: no connection to the relay. live: everything that the relay sent is in the index, or nearly. catchingUp: the index is behind. blocked: the relay reported that the cursor is in its future, and an operator must decide. full: the disk is full, and nothing is indexed until there is space. off: this process is a query node.
    state: Union[Literal["connecting", "live", "catchingUp", "blocked", "full", "off"], str]
    strings: GetStatsStrings
    version: str


class GetStatsOutput(_GetStatsOutput, total=False):
    """Describes the contents of the index, and how current it is. If reason is there, it says why sets that depend on everybody, such as followers and likers, may be incomplete."""

    around: Around
    audited: GetStatsAudited
    #: The last committed sequence number of the relay. Absent before the first event.
    cursor: int
    #: Repos that were queued and then given up.
    failed: List[GetStatsFailed]
    #: Active accounts with missing or doubtful records.
    incomplete: int
    #: The labelers whose labels are indexed.
    labelers: List[GetStatsLabeler]
    #: The age of the newest event. If the stream is idle and all of it is committed, the time since the relay last proved that it is alive. Absent before the first event.
    lagSeconds: int
    #: Active accounts whose changes skein may have missed since it first heard of them.
    missed: int
    missing: Missing
    #: Why answers that depend on all accounts may be incomplete. Absent if they are complete.
    reason: str
    roster: Roster
    #: Since when the stream has had no hole.
    since: str
    #: Percent of the network that nothing is indexed of at present, because a writer of the index has stopped. Absent if there is none.
    unwritten: int
    #: Repos in the resync queue. Absent if this server fetches none.
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


class HistogramBucket(TypedDict):
    count: int
    start: str


class _HistogramOutput(TypedDict):
    #: The length of a bucket in seconds.
    bucketSeconds: int
    #: In order of time, without gaps: from the bucket of the first record to the bucket of the last.
    buckets: List[HistogramBucket]
    #: The exact number of members; in the buckets, earlier, later and undated together.
    total: int
    type: Union[Literal["did", "uri"], str]


class HistogramOutput(_HistogramOutput, total=False):
    """Counts the members of a set by time, such as the likes of a post by the hour. How many followers did A gain a day? set=followers(A), bucket=1d. The time of a member is that of the record that makes it a member, as list shows it."""

    #: Members whose records are earlier than the first bucket, because there are at most 1,000 buckets, or without bucket 120. Absent if there are none.
    earlier: int
    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    #: Members whose records are dated in the future; without until they have no bucket. Absent if there are none.
    later: int
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read, for each ranking or list that it sampled.
    sample: str
    #: True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read.
    sampled: bool
    #: Members whose records have no time in their keys. Absent if there are none.
    undated: int


class KnownKnownSubject(TypedDict):
    sample: List[str]
    subject: str
    #: The exact number, whatever the limit.
    total: int


class _KnownOutput(TypedDict):
    #: In the order of the query.
    subjects: List[KnownKnownSubject]


class KnownOutput(_KnownOutput, total=False):
    """Lists, for each subject, the accounts that an actor follows and that are in a set of the subject, such as its followers, its likers, or the accounts on it, if it is a list; total says how many. Which of these posts have the most likers among those I follow? actor=ME, edge=likers, subject=each post."""

    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str


class _LabelsLabel(TypedDict):
    #: When the label was made.
    cts: str
    #: The labeler.
    src: str
    #: The account or record.
    uri: str
    #: The value.
    val: str


class LabelsLabel(_LabelsLabel, total=False):
    """The fields of com.atproto.label.defs#label."""

    #: The version of the record, if the label is on one.
    cid: str
    #: When it expires.
    exp: str


class _LabelsOutput(TypedDict):
    #: By subject, labeler and value.
    labels: List[LabelsLabel]


class LabelsOutput(_LabelsOutput, total=False):
    """Lists the labels of accounts and records that are in effect, by the labelers that the server reads (getStats)."""

    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str


class _ListItem(TypedDict):
    member: str


class ListItem(_ListItem, total=False):
    #: With order=created: the time in the member's own key. Absent if the key has none.
    created: str
    #: The record that makes the edge, absent if none does. Of several sets united, the newest one. Of several for one set, the first one after the subject by their keys, or else the last one before it.
    record: str
    #: With order=size(NAME): the number of members of the member's own set NAME.
    size: int
    #: The time in the record's key. Absent if the key has none.
    time: str


class _ListOutput(TypedDict):
    items: List[ListItem]
    #: The order of the items. Instead of newest or oldest it is id for sets that are too large to be sorted by time.
    order: str
    #: The exact size of the set, on every page.
    total: int
    type: Union[Literal["did", "uri"], str]


class ListOutput(_ListOutput, total=False):
    """Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers)."""

    #: Absent on the last page.
    cursor: str
    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read, for each ranking or list that it sampled.
    sample: str
    #: True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read.
    sampled: bool


class _OverlapOutput(TypedDict):
    #: A row for each set: how many of its members are in each of the sets.
    pairs: List[OverlapRow]
    #: The exact sizes of the sets, in the order of the query. Inactive accounts do not count.
    totals: List[int]
    type: Union[Literal["did", "uri"], str]


class OverlapOutput(_OverlapOutput, total=False):
    """Counts the members of up to 20 sets, and of what each two of them have in common. How many followers do A and B share? set=followers(A), set=followers(B)."""

    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read, for each ranking that it sampled.
    sample: str
    #: True if a ranking in the sets exceeded its budget and read a sample. The numbers are then estimates. Absent if everything was read.
    sampled: bool


#: How many members of a set are in each of the sets, in the order of the query.
OverlapRow = List[int]


class _PathOutput(TypedDict):
    #: The accounts, from the first to the last: each follows the next. Empty if no chain is that short.
    path: List[str]


class PathOutput(_PathOutput, total=False):
    """Finds a shortest chain of follows from one account to another. How close are A and B? from=A, to=B."""

    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str


class _QueryOutput(TypedDict):
    #: The exact size of the set, on every page.
    total: int
    type: Union[Literal["did", "uri"], str]


class QueryOutput(_QueryOutput, total=False):
    """Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more."""

    #: Absent on the last page.
    cursor: str
    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    members: List[str]
    missing: Missing
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str
    #: With records=true: the record that makes the edge, by member. If there are several, the first one after the subject by their keys, or else the last one before it.
    records: List[str]
    #: The part that skein read, for each ranking or list that it sampled.
    sample: str
    #: True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read.
    sampled: bool


class _RankOutput(TypedDict):
    items: List[RankRanked]
    type: Union[Literal["did", "uri"], str]


class RankOutput(_RankOutput, total=False):
    """Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A)."""

    #: For share and lift: the number of active accounts.
    accounts: int
    #: Absent on the last page.
    cursor: str
    #: With names=true: handles by DID, verified in both directions.
    handles: Dict[str, Any]
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: For share and lift: the number of accounts in the set.
    of: int
    #: With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest).
    proof: Dict[str, Any]
    #: Why the answer may be incomplete.
    reason: str
    #: The part that skein read, for each ranking or list that it sampled.
    sample: str
    #: True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read.
    sampled: bool


class _RankRanked(TypedDict):
    #: How many members lead to the result; of blend(…), the sum of the counts of its rankings.
    count: int
    member: str


class RankRanked(_RankRanked, total=False):
    #: For lift: (count / of) / (total / accounts), in millionths. 1950000 means 1.95 times chance.
    lift: int
    #: For score: the score, in billionths, rounded.
    score: int
    #: For share: count / total, in millionths.
    share: int
    #: For share, lift and damp: the number of all accounts with an edge to the result. If via leads to the accounts that created the records, the number of such records that the result has.
    total: int


class _SubscribeChange(TypedDict):
    cursor: str


class SubscribeChange(_SubscribeChange, total=False):
    entered: List[str]
    left: List[str]
    #: Ask for the set again. The value says why: the cursor is too old, too much changed at once, or the client's subscriptions cost too much.
    reset: str
    #: In the first message: the type of the members.
    type: Union[Literal["did", "uri"], str]


class _QueryLabelsOutput(TypedDict):
    labels: List[LabelsLabel]


class QueryLabelsOutput(_QueryLabelsOutput, total=False):
    """Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler."""

    #: Absent on the last page. With a prefix, a page may have fewer labels than limit, or none, before the last.
    cursor: str
    #: True if the answer may be incomplete, absent if everything that it depends on is indexed.
    incomplete: bool
    missing: Missing
    #: Why the answer may be incomplete.
    reason: str


class Methods:
    """The methods of a server."""

    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def describe_feed_generator(self) -> DescribeFeedGeneratorOutput:
        """Lists the feeds in the server's --feeds file. This is Bluesky's method, in part."""
        answer: DescribeFeedGeneratorOutput = self._call("app.bsky.feed.describeFeedGenerator", {})
        return answer

    def get_feed_skeleton(self, feed: str, *, cursor: str | None = None, limit: int | None = None) -> GetFeedSkeletonOutput:
        """Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part.

        feed: The AT URI of the feed's record.
        cursor: The cursor of the previous page of the same feed.
        """
        answer: GetFeedSkeletonOutput = self._call("app.bsky.feed.getFeedSkeleton", {"feed": feed, "cursor": cursor, "limit": limit})
        return answer

    def get_relationships(self, actor: str, *, others: Sequence[str] | None = None) -> GetRelationshipsOutput:
        """Returns the follows and blocks between an account and others, with the records. This is Bluesky's method, in part.

        actor: A DID or a handle.
        others: DIDs or handles.
        """
        answer: GetRelationshipsOutput = self._call("app.bsky.graph.getRelationships", {"actor": actor, "others": others})
        return answer

    def get_backlink_dids(self, subject: str, source: str, *, cursor: str | None = None, limit: int | None = None) -> GetBacklinkDidsOutput:
        """Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: The cursor of the previous page of the same query.
        limit: 0 returns only the total.
        """
        answer: GetBacklinkDidsOutput = self._call("blue.microcosm.links.getBacklinkDids", {"subject": subject, "source": source, "cursor": cursor, "limit": limit})
        return answer

    def get_backlinks(self, subject: str, source: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, reverse: bool | None = None) -> GetBacklinksOutput:
        """Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: The cursor of the previous page of the same query.
        did: Return only records of these accounts.
        limit: 0 returns only the total.
        reverse: Return the oldest first.
        """
        answer: GetBacklinksOutput = self._call("blue.microcosm.links.getBacklinks", {"subject": subject, "source": source, "cursor": cursor, "did": did, "limit": limit, "reverse": reverse})
        return answer

    def get_backlinks_count(self, subject: str, source: str) -> GetBacklinksCountOutput:
        """Counts the accounts that link to a subject. In a collection that the server added, it counts their records, unless more than 10,000 accounts have one. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        """
        answer: GetBacklinksCountOutput = self._call("blue.microcosm.links.getBacklinksCount", {"subject": subject, "source": source})
        return answer

    def contains(self, set_: str, member: Sequence[str]) -> ContainsOutput:
        """Tells for each of the given strings whether it is a member of a set. Does A follow B? set=follows(A), member=B.

        set_: A set expression, as for query, with at most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token.
        member: DIDs, AT URIs or texts, the type of the set's members. A string in double quotes, as in JSON, is taken character for character.
        """
        answer: ContainsOutput = self._call("blue.skein.graph.contains", {"set": set_, "member": member})
        return answer

    def counts(self, edge: Sequence[Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str]], subject: Sequence[str], *, names: bool | None = None, proof: bool | None = None) -> CountsOutput:
        """Counts the members of several sets of each subject, such as the likers, reposters and quoters of a hundred posts.

        edge: The names of the sets: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or sets of configured kinds. All take the same type of subject.
        subject: DIDs, AT URIs or texts, as the sets take them. A string in double quotes, as in JSON, is taken character for character. $viewer stands for the DID of the account in the service auth token.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        """
        answer: CountsOutput = self._call("blue.skein.graph.counts", {"edge": edge, "subject": subject, "names": names, "proof": proof})
        return answer

    def get_account(self, did: str) -> GetAccountOutput:
        """Describes an account in the index, and says in state whether all of its records are there, or what may be missing.

        did: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        """
        answer: GetAccountOutput = self._call("blue.skein.graph.getAccount", {"did": did})
        return answer

    def get_blocks(self, actor: str, direction: Literal["blocking", "blockedBy"], *, cursor: str | None = None, limit: int | None = None, names: bool | None = None, others: Sequence[str] | None = None) -> GetBlocksOutput:
        """Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others.

        actor: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        direction: blocking: the accounts that actor blocks. blockedBy: the accounts that block actor.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        others: Answer only about these accounts. Cannot be combined with limit and cursor.
        """
        answer: GetBlocksOutput = self._call("blue.skein.graph.getBlocks", {"actor": actor, "direction": direction, "cursor": cursor, "limit": limit, "names": names, "others": others})
        return answer

    def get_stats(self) -> GetStatsOutput:
        """Describes the contents of the index, and how current it is. If reason is there, it says why sets that depend on everybody, such as followers and likers, may be incomplete."""
        answer: GetStatsOutput = self._call("blue.skein.graph.getStats", {})
        return answer

    def histogram(self, set_: str, *, bucket: Duration | None = None, names: bool | None = None, since: Time | None = None, until: Time | None = None) -> HistogramOutput:
        """Counts the members of a set by time, such as the likes of a post by the hour. How many followers did A gain a day? set=followers(A), bucket=1d. The time of a member is that of the record that makes it a member, as list shows it.

        set_: A set expression: a single set such as likers(at://…), a union or atleast of such sets, or an intersect, except, sample or by of one that comes first. It fails if the records of more than 200,000 members must be read. $viewer stands for the DID of the account in the service auth token.
        bucket: The length of a bucket: whole seconds from 1m to 30d, such as 15m, 1h or 7d. Buckets start at whole multiples of it after 1970-01-01T00:00:00Z. If absent, the server chooses 1m, 5m, 15m, 1h, 6h, 1d, 7d or 30d.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        since: Count only records at or after this time: RFC 3339, a date, or an age such as 24h or 7d.
        until: Count only records before this time.
        """
        answer: HistogramOutput = self._call("blue.skein.graph.histogram", {"set": set_, "bucket": bucket, "names": names, "since": since, "until": until})
        return answer

    def known(self, actor: str, edge: Union[Literal["follows", "followers", "blocks", "blockers", "likers", "reposters", "listblockers", "listed"], str], subject: Sequence[str], *, limit: int | None = None) -> KnownOutput:
        """Lists, for each subject, the accounts that an actor follows and that are in a set of the subject, such as its followers, its likers, or the accounts on it, if it is a list; total says how many. Which of these posts have the most likers among those I follow? actor=ME, edge=likers, subject=each post.

        actor: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        edge: The name of a set of accounts: followers, follows, blockers, blocks, likers, reposters, listed, listblockers, or one of a configured kind.
        subject: DIDs, AT URIs or texts, as the set takes them. A string in double quotes, as in JSON, is taken character for character.
        limit: How many accounts to name for each subject.
        """
        answer: KnownOutput = self._call("blue.skein.graph.known", {"actor": actor, "edge": edge, "subject": subject, "limit": limit})
        return answer

    def labels(self, subject: Sequence[str], *, proof: bool | None = None) -> LabelsOutput:
        """Lists the labels of accounts and records that are in effect, by the labelers that the server reads (getStats).

        subject: DIDs and AT URIs. $viewer stands for the DID of the account in the service auth token.
        proof: Return what proves that the answer is complete.
        """
        answer: LabelsOutput = self._call("blue.skein.graph.labels", {"subject": subject, "proof": proof})
        return answer

    def list(self, set_: str, *, cursor: str | None = None, exact: bool | None = None, limit: int | None = None, names: bool | None = None, order: Union[Literal["newest", "oldest", "created", "id"], str] | None = None, proof: bool | None = None) -> ListOutput:
        """Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers).

        set_: A set expression, as for query, such as intersect(likers(POST), follows(A)). $viewer stands for the DID of the account in the service auth token.
        cursor: The cursor of the previous page of the same set in the same order.
        exact: Fail instead of sorting or ranking a sample.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        order: newest (default) or oldest: by the times of the records, those without a time or dated ahead of now last; the set must be a single one, a union or atleast of such sets, each of whose members then has the newest of its records, or an intersect, except, sample or by of one that comes first. created: records by the times in their own keys, the newest first. id: a stable order without times, the default of other expressions. size(NAME): by the number of members of each member's own set, such as size(followers), the largest first; of more than 20,000 members (1,000 by lists, listed, replies and quotes), a sample.
        proof: Return what proves that the answer is complete.
        """
        answer: ListOutput = self._call("blue.skein.graph.list", {"set": set_, "cursor": cursor, "exact": exact, "limit": limit, "names": names, "order": order, "proof": proof})
        return answer

    def overlap(self, set_: Sequence[str], *, names: bool | None = None, proof: bool | None = None, with_: str | None = None) -> OverlapOutput:
        """Counts the members of up to 20 sets, and of what each two of them have in common. How many followers do A and B share? set=followers(A), set=followers(B).

        set_: Set expressions, all of DIDs or all of AT URIs, with at most 64 sets and 8 rankings together. $viewer stands for the DID of the account in the service auth token.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        with_: One more set, to compare with each: the last of totals and pairs.
        """
        answer: OverlapOutput = self._call("blue.skein.graph.overlap", {"set": set_, "names": names, "proof": proof, "with": with_})
        return answer

    def path(self, from_: str, to: str, *, max: int | None = None, proof: bool | None = None) -> PathOutput:
        """Finds a shortest chain of follows from one account to another. How close are A and B? from=A, to=B.

        from_: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        to: Likewise.
        max: The most follows in the chain.
        proof: Return what proves that the answer is complete.
        """
        answer: PathOutput = self._call("blue.skein.graph.path", {"from": from_, "to": to, "max": max, "proof": proof})
        return answer

    def query(self, set_: str, *, count: bool | None = None, cursor: str | None = None, limit: int | None = None, names: bool | None = None, proof: bool | None = None, records: bool | None = None) -> QueryOutput:
        """Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more.

        set_: A set expression. Sets of accounts: follows(A), followers(A), mutuals(A), blocks(A), blockers(A), likers(POST), reposters(POST), listed(LIST), listblockers(LIST); blocking(A) and blockedBy(A), through lists, too. Sets of records: likes(A), reposts(A), lists(A) that A is on, listblocks(A). A is a DID, or a handle with a leading @; POST and LIST are AT URIs or bsky.app URLs. Combine sets of one type: intersect(E, E), union(E, E), except(E, E), atleast(2, E, E, E), sample(E, N); authors(E) of records; by(E, ACCOUNTS), the records in E that they created. A set may have a time window for its records: likes(A, since=24h), since=2026-11-01, until=2026-11-22T06:00:00Z. A ranking is a set, too: rank(of=likes(A), via=likers, top=300). At most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token.
        count: Return only the total, without members and cursor.
        cursor: The cursor of the previous page of the same set.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        records: Return the record that makes the edge with each member. Works only for a single set.
        """
        answer: QueryOutput = self._call("blue.skein.graph.query", {"set": set_, "count": count, "cursor": cursor, "limit": limit, "names": names, "proof": proof, "records": records})
        return answer

    def rank(self, *, by: Literal["count", "share", "lift", "score"] | None = None, cursor: str | None = None, damp: Number | None = None, decay: Duration | None = None, exact: bool | None = None, except_: str | None = None, limit: int | None = None, min: int | None = None, names: bool | None = None, of: str | None = None, proof: bool | None = None, set_: str | None = None, since: Time | None = None, subjects_since: Time | None = None, until: Time | None = None, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str] | None = None, weigh: Literal["score"] | None = None) -> RankOutput:
        """Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A).

        by: The order. count: how many members of the set have an edge to the result. share: their share of all accounts that have one. lift: how many times more they are than by chance. Of more than 20,000 results, only those with the highest counts are scored. score: by weigh, damp and decay, the 20,000 highest; the default if one of them is given.
        cursor: The cursor of the previous page. Each page reads the current index, so a result whose rank changes meanwhile may appear twice or not at all.
        damp: A number from 0 to 1. The score of a result is divided by this power of the number of all accounts (or subjects) with the edge to it, so that what is popular anyway counts for less. If there are more than 20,000 results (5,000 if via leads to accounts that link to a member, as likers and followers do), only those with the highest scores before the division remain.
        decay: The half-life of an edge, such as 6h or 7d: an edge that is so old adds half as much to the score.
        exact: Fail instead of reading a sample. A ranking then reads up to 67 million edges.
        except_: An expression for a set of results to leave out.
        min: The lowest count of a result. The default is 1, or 5 for share and lift.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        of: An expression for a set, as for query. Without set, of and via are required.
        proof: Return what proves that the answer is complete.
        set_: A whole ranking, rank(…) or blend(…), instead of of, via and what comes with them. blend(3, rank(of=E, via=likes), 1, rank(of=E, via=reposts)) is a weighted sum. $viewer stands for the DID of the account in the service auth token.
        since: Use only records with a time in their key from then on: RFC 3339, a date, or an age such as 24h or 7d.
        subjects_since: If the results are records, return only those with a time in their key from then on.
        until: Use only records with a time in their key before then.
        via: The name of a set that takes one of the members: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or a set of a configured kind.
        weigh: Weigh each member of the set by its score there, divided by the highest one. The set must be rank(…) with top.
        """
        answer: RankOutput = self._call("blue.skein.graph.rank", {"by": by, "cursor": cursor, "damp": damp, "decay": decay, "exact": exact, "except": except_, "limit": limit, "min": min, "names": names, "of": of, "proof": proof, "set": set_, "since": since, "subjectsSince": subjects_since, "until": until, "via": via, "weigh": weigh})
        return answer

    def query_labels(self, uri_patterns: Sequence[str], *, cursor: str | None = None, limit: int | None = None, sources: Sequence[str] | None = None) -> QueryLabelsOutput:
        """Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler.

        uri_patterns: List of AT URI patterns to match (boolean 'OR'). Each may be a prefix (ending with '*'; will match inclusive of the string leading to '*'), or a full URI, or a DID. A prefix names accounts by their DIDs.
        cursor: The cursor of the previous page.
        sources: Optional list of label sources (DIDs) to filter on.
        """
        answer: QueryLabelsOutput = self._call("com.atproto.label.queryLabels", {"uriPatterns": uri_patterns, "cursor": cursor, "limit": limit, "sources": sources})
        return answer


class AsyncMethods:
    """The methods of a server, for asyncio."""

    async def _call(self, nsid: str, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    async def describe_feed_generator(self) -> DescribeFeedGeneratorOutput:
        """Lists the feeds in the server's --feeds file. This is Bluesky's method, in part."""
        answer: DescribeFeedGeneratorOutput = await self._call("app.bsky.feed.describeFeedGenerator", {})
        return answer

    async def get_feed_skeleton(self, feed: str, *, cursor: str | None = None, limit: int | None = None) -> GetFeedSkeletonOutput:
        """Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part.

        feed: The AT URI of the feed's record.
        cursor: The cursor of the previous page of the same feed.
        """
        answer: GetFeedSkeletonOutput = await self._call("app.bsky.feed.getFeedSkeleton", {"feed": feed, "cursor": cursor, "limit": limit})
        return answer

    async def get_relationships(self, actor: str, *, others: Sequence[str] | None = None) -> GetRelationshipsOutput:
        """Returns the follows and blocks between an account and others, with the records. This is Bluesky's method, in part.

        actor: A DID or a handle.
        others: DIDs or handles.
        """
        answer: GetRelationshipsOutput = await self._call("app.bsky.graph.getRelationships", {"actor": actor, "others": others})
        return answer

    async def get_backlink_dids(self, subject: str, source: str, *, cursor: str | None = None, limit: int | None = None) -> GetBacklinkDidsOutput:
        """Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: The cursor of the previous page of the same query.
        limit: 0 returns only the total.
        """
        answer: GetBacklinkDidsOutput = await self._call("blue.microcosm.links.getBacklinkDids", {"subject": subject, "source": source, "cursor": cursor, "limit": limit})
        return answer

    async def get_backlinks(self, subject: str, source: str, *, cursor: str | None = None, did: Sequence[str] | None = None, limit: int | None = None, reverse: bool | None = None) -> GetBacklinksOutput:
        """Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        cursor: The cursor of the previous page of the same query.
        did: Return only records of these accounts.
        limit: 0 returns only the total.
        reverse: Return the oldest first.
        """
        answer: GetBacklinksOutput = await self._call("blue.microcosm.links.getBacklinks", {"subject": subject, "source": source, "cursor": cursor, "did": did, "limit": limit, "reverse": reverse})
        return answer

    async def get_backlinks_count(self, subject: str, source: str) -> GetBacklinksCountOutput:
        """Counts the accounts that link to a subject. In a collection that the server added, it counts their records, unless more than 10,000 accounts have one. This is Constellation's method, for the collections that this server indexes.

        subject: The DID or AT URI that the links lead to.
        source: A collection and a path in its records, such as app.bsky.feed.like:subject.uri.
        """
        answer: GetBacklinksCountOutput = await self._call("blue.microcosm.links.getBacklinksCount", {"subject": subject, "source": source})
        return answer

    async def contains(self, set_: str, member: Sequence[str]) -> ContainsOutput:
        """Tells for each of the given strings whether it is a member of a set. Does A follow B? set=follows(A), member=B.

        set_: A set expression, as for query, with at most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token.
        member: DIDs, AT URIs or texts, the type of the set's members. A string in double quotes, as in JSON, is taken character for character.
        """
        answer: ContainsOutput = await self._call("blue.skein.graph.contains", {"set": set_, "member": member})
        return answer

    async def counts(self, edge: Sequence[Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str]], subject: Sequence[str], *, names: bool | None = None, proof: bool | None = None) -> CountsOutput:
        """Counts the members of several sets of each subject, such as the likers, reposters and quoters of a hundred posts.

        edge: The names of the sets: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or sets of configured kinds. All take the same type of subject.
        subject: DIDs, AT URIs or texts, as the sets take them. A string in double quotes, as in JSON, is taken character for character. $viewer stands for the DID of the account in the service auth token.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        """
        answer: CountsOutput = await self._call("blue.skein.graph.counts", {"edge": edge, "subject": subject, "names": names, "proof": proof})
        return answer

    async def get_account(self, did: str) -> GetAccountOutput:
        """Describes an account in the index, and says in state whether all of its records are there, or what may be missing.

        did: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        """
        answer: GetAccountOutput = await self._call("blue.skein.graph.getAccount", {"did": did})
        return answer

    async def get_blocks(self, actor: str, direction: Literal["blocking", "blockedBy"], *, cursor: str | None = None, limit: int | None = None, names: bool | None = None, others: Sequence[str] | None = None) -> GetBlocksOutput:
        """Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others.

        actor: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        direction: blocking: the accounts that actor blocks. blockedBy: the accounts that block actor.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        others: Answer only about these accounts. Cannot be combined with limit and cursor.
        """
        answer: GetBlocksOutput = await self._call("blue.skein.graph.getBlocks", {"actor": actor, "direction": direction, "cursor": cursor, "limit": limit, "names": names, "others": others})
        return answer

    async def get_stats(self) -> GetStatsOutput:
        """Describes the contents of the index, and how current it is. If reason is there, it says why sets that depend on everybody, such as followers and likers, may be incomplete."""
        answer: GetStatsOutput = await self._call("blue.skein.graph.getStats", {})
        return answer

    async def histogram(self, set_: str, *, bucket: Duration | None = None, names: bool | None = None, since: Time | None = None, until: Time | None = None) -> HistogramOutput:
        """Counts the members of a set by time, such as the likes of a post by the hour. How many followers did A gain a day? set=followers(A), bucket=1d. The time of a member is that of the record that makes it a member, as list shows it.

        set_: A set expression: a single set such as likers(at://…), a union or atleast of such sets, or an intersect, except, sample or by of one that comes first. It fails if the records of more than 200,000 members must be read. $viewer stands for the DID of the account in the service auth token.
        bucket: The length of a bucket: whole seconds from 1m to 30d, such as 15m, 1h or 7d. Buckets start at whole multiples of it after 1970-01-01T00:00:00Z. If absent, the server chooses 1m, 5m, 15m, 1h, 6h, 1d, 7d or 30d.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        since: Count only records at or after this time: RFC 3339, a date, or an age such as 24h or 7d.
        until: Count only records before this time.
        """
        answer: HistogramOutput = await self._call("blue.skein.graph.histogram", {"set": set_, "bucket": bucket, "names": names, "since": since, "until": until})
        return answer

    async def known(self, actor: str, edge: Union[Literal["follows", "followers", "blocks", "blockers", "likers", "reposters", "listblockers", "listed"], str], subject: Sequence[str], *, limit: int | None = None) -> KnownOutput:
        """Lists, for each subject, the accounts that an actor follows and that are in a set of the subject, such as its followers, its likers, or the accounts on it, if it is a list; total says how many. Which of these posts have the most likers among those I follow? actor=ME, edge=likers, subject=each post.

        actor: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        edge: The name of a set of accounts: followers, follows, blockers, blocks, likers, reposters, listed, listblockers, or one of a configured kind.
        subject: DIDs, AT URIs or texts, as the set takes them. A string in double quotes, as in JSON, is taken character for character.
        limit: How many accounts to name for each subject.
        """
        answer: KnownOutput = await self._call("blue.skein.graph.known", {"actor": actor, "edge": edge, "subject": subject, "limit": limit})
        return answer

    async def labels(self, subject: Sequence[str], *, proof: bool | None = None) -> LabelsOutput:
        """Lists the labels of accounts and records that are in effect, by the labelers that the server reads (getStats).

        subject: DIDs and AT URIs. $viewer stands for the DID of the account in the service auth token.
        proof: Return what proves that the answer is complete.
        """
        answer: LabelsOutput = await self._call("blue.skein.graph.labels", {"subject": subject, "proof": proof})
        return answer

    async def list(self, set_: str, *, cursor: str | None = None, exact: bool | None = None, limit: int | None = None, names: bool | None = None, order: Union[Literal["newest", "oldest", "created", "id"], str] | None = None, proof: bool | None = None) -> ListOutput:
        """Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers).

        set_: A set expression, as for query, such as intersect(likers(POST), follows(A)). $viewer stands for the DID of the account in the service auth token.
        cursor: The cursor of the previous page of the same set in the same order.
        exact: Fail instead of sorting or ranking a sample.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        order: newest (default) or oldest: by the times of the records, those without a time or dated ahead of now last; the set must be a single one, a union or atleast of such sets, each of whose members then has the newest of its records, or an intersect, except, sample or by of one that comes first. created: records by the times in their own keys, the newest first. id: a stable order without times, the default of other expressions. size(NAME): by the number of members of each member's own set, such as size(followers), the largest first; of more than 20,000 members (1,000 by lists, listed, replies and quotes), a sample.
        proof: Return what proves that the answer is complete.
        """
        answer: ListOutput = await self._call("blue.skein.graph.list", {"set": set_, "cursor": cursor, "exact": exact, "limit": limit, "names": names, "order": order, "proof": proof})
        return answer

    async def overlap(self, set_: Sequence[str], *, names: bool | None = None, proof: bool | None = None, with_: str | None = None) -> OverlapOutput:
        """Counts the members of up to 20 sets, and of what each two of them have in common. How many followers do A and B share? set=followers(A), set=followers(B).

        set_: Set expressions, all of DIDs or all of AT URIs, with at most 64 sets and 8 rankings together. $viewer stands for the DID of the account in the service auth token.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        with_: One more set, to compare with each: the last of totals and pairs.
        """
        answer: OverlapOutput = await self._call("blue.skein.graph.overlap", {"set": set_, "names": names, "proof": proof, "with": with_})
        return answer

    async def path(self, from_: str, to: str, *, max: int | None = None, proof: bool | None = None) -> PathOutput:
        """Finds a shortest chain of follows from one account to another. How close are A and B? from=A, to=B.

        from_: A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token.
        to: Likewise.
        max: The most follows in the chain.
        proof: Return what proves that the answer is complete.
        """
        answer: PathOutput = await self._call("blue.skein.graph.path", {"from": from_, "to": to, "max": max, "proof": proof})
        return answer

    async def query(self, set_: str, *, count: bool | None = None, cursor: str | None = None, limit: int | None = None, names: bool | None = None, proof: bool | None = None, records: bool | None = None) -> QueryOutput:
        """Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more.

        set_: A set expression. Sets of accounts: follows(A), followers(A), mutuals(A), blocks(A), blockers(A), likers(POST), reposters(POST), listed(LIST), listblockers(LIST); blocking(A) and blockedBy(A), through lists, too. Sets of records: likes(A), reposts(A), lists(A) that A is on, listblocks(A). A is a DID, or a handle with a leading @; POST and LIST are AT URIs or bsky.app URLs. Combine sets of one type: intersect(E, E), union(E, E), except(E, E), atleast(2, E, E, E), sample(E, N); authors(E) of records; by(E, ACCOUNTS), the records in E that they created. A set may have a time window for its records: likes(A, since=24h), since=2026-11-01, until=2026-11-22T06:00:00Z. A ranking is a set, too: rank(of=likes(A), via=likers, top=300). At most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token.
        count: Return only the total, without members and cursor.
        cursor: The cursor of the previous page of the same set.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        proof: Return what proves that the answer is complete.
        records: Return the record that makes the edge with each member. Works only for a single set.
        """
        answer: QueryOutput = await self._call("blue.skein.graph.query", {"set": set_, "count": count, "cursor": cursor, "limit": limit, "names": names, "proof": proof, "records": records})
        return answer

    async def rank(self, *, by: Literal["count", "share", "lift", "score"] | None = None, cursor: str | None = None, damp: Number | None = None, decay: Duration | None = None, exact: bool | None = None, except_: str | None = None, limit: int | None = None, min: int | None = None, names: bool | None = None, of: str | None = None, proof: bool | None = None, set_: str | None = None, since: Time | None = None, subjects_since: Time | None = None, until: Time | None = None, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str] | None = None, weigh: Literal["score"] | None = None) -> RankOutput:
        """Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A).

        by: The order. count: how many members of the set have an edge to the result. share: their share of all accounts that have one. lift: how many times more they are than by chance. Of more than 20,000 results, only those with the highest counts are scored. score: by weigh, damp and decay, the 20,000 highest; the default if one of them is given.
        cursor: The cursor of the previous page. Each page reads the current index, so a result whose rank changes meanwhile may appear twice or not at all.
        damp: A number from 0 to 1. The score of a result is divided by this power of the number of all accounts (or subjects) with the edge to it, so that what is popular anyway counts for less. If there are more than 20,000 results (5,000 if via leads to accounts that link to a member, as likers and followers do), only those with the highest scores before the division remain.
        decay: The half-life of an edge, such as 6h or 7d: an edge that is so old adds half as much to the score.
        exact: Fail instead of reading a sample. A ranking then reads up to 67 million edges.
        except_: An expression for a set of results to leave out.
        min: The lowest count of a result. The default is 1, or 5 for share and lift.
        names: Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds.
        of: An expression for a set, as for query. Without set, of and via are required.
        proof: Return what proves that the answer is complete.
        set_: A whole ranking, rank(…) or blend(…), instead of of, via and what comes with them. blend(3, rank(of=E, via=likes), 1, rank(of=E, via=reposts)) is a weighted sum. $viewer stands for the DID of the account in the service auth token.
        since: Use only records with a time in their key from then on: RFC 3339, a date, or an age such as 24h or 7d.
        subjects_since: If the results are records, return only those with a time in their key from then on.
        until: Use only records with a time in their key before then.
        via: The name of a set that takes one of the members: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or a set of a configured kind.
        weigh: Weigh each member of the set by its score there, divided by the highest one. The set must be rank(…) with top.
        """
        answer: RankOutput = await self._call("blue.skein.graph.rank", {"by": by, "cursor": cursor, "damp": damp, "decay": decay, "exact": exact, "except": except_, "limit": limit, "min": min, "names": names, "of": of, "proof": proof, "set": set_, "since": since, "subjectsSince": subjects_since, "until": until, "via": via, "weigh": weigh})
        return answer

    async def query_labels(self, uri_patterns: Sequence[str], *, cursor: str | None = None, limit: int | None = None, sources: Sequence[str] | None = None) -> QueryLabelsOutput:
        """Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler.

        uri_patterns: List of AT URI patterns to match (boolean 'OR'). Each may be a prefix (ending with '*'; will match inclusive of the string leading to '*'), or a full URI, or a DID. A prefix names accounts by their DIDs.
        cursor: The cursor of the previous page.
        sources: Optional list of label sources (DIDs) to filter on.
        """
        answer: QueryLabelsOutput = await self._call("com.atproto.label.queryLabels", {"uriPatterns": uri_patterns, "cursor": cursor, "limit": limit, "sources": sources})
        return answer


class PagedMethods:
    """The methods that return pages. Each iterates over the items of all of them."""

    def _pages(self, nsid: str, field: str, most: int, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def get_feed_skeleton(self, feed: str) -> Pages[GetFeedSkeletonPost]:
        """Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part."""
        pages: Pages[GetFeedSkeletonPost] = self._pages("app.bsky.feed.getFeedSkeleton", "feed", 100, {"feed": feed})
        return pages

    def get_backlink_dids(self, subject: str, source: str) -> Pages[str]:
        """Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes."""
        pages: Pages[str] = self._pages("blue.microcosm.links.getBacklinkDids", "linking_dids", 1000, {"subject": subject, "source": source})
        return pages

    def get_backlinks(self, subject: str, source: str, *, did: Sequence[str] | None = None, reverse: bool | None = None) -> Pages[GetBacklinksLinkRecord]:
        """Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes."""
        pages: Pages[GetBacklinksLinkRecord] = self._pages("blue.microcosm.links.getBacklinks", "records", 1000, {"subject": subject, "source": source, "did": did, "reverse": reverse})
        return pages

    def get_blocks(self, actor: str, direction: Literal["blocking", "blockedBy"], *, names: bool | None = None) -> Pages[GetBlocksBlock]:
        """Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others."""
        pages: Pages[GetBlocksBlock] = self._pages("blue.skein.graph.getBlocks", "blocks", 100, {"actor": actor, "direction": direction, "names": names})
        return pages

    def list(self, set_: str, *, exact: bool | None = None, names: bool | None = None, order: Union[Literal["newest", "oldest", "created", "id"], str] | None = None, proof: bool | None = None) -> Pages[ListItem]:
        """Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers)."""
        pages: Pages[ListItem] = self._pages("blue.skein.graph.list", "items", 1000, {"set": set_, "exact": exact, "names": names, "order": order, "proof": proof})
        return pages

    def query(self, set_: str, *, names: bool | None = None, proof: bool | None = None, records: bool | None = None) -> Pages[str]:
        """Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more."""
        pages: Pages[str] = self._pages("blue.skein.graph.query", "members", 1000, {"set": set_, "names": names, "proof": proof, "records": records})
        return pages

    def rank(self, *, by: Literal["count", "share", "lift", "score"] | None = None, damp: Number | None = None, decay: Duration | None = None, exact: bool | None = None, except_: str | None = None, min: int | None = None, names: bool | None = None, of: str | None = None, proof: bool | None = None, set_: str | None = None, since: Time | None = None, subjects_since: Time | None = None, until: Time | None = None, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str] | None = None, weigh: Literal["score"] | None = None) -> Pages[RankRanked]:
        """Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A)."""
        pages: Pages[RankRanked] = self._pages("blue.skein.graph.rank", "items", 1000, {"by": by, "damp": damp, "decay": decay, "exact": exact, "except": except_, "min": min, "names": names, "of": of, "proof": proof, "set": set_, "since": since, "subjectsSince": subjects_since, "until": until, "via": via, "weigh": weigh})
        return pages

    def query_labels(self, uri_patterns: Sequence[str], *, sources: Sequence[str] | None = None) -> Pages[LabelsLabel]:
        """Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler."""
        pages: Pages[LabelsLabel] = self._pages("com.atproto.label.queryLabels", "labels", 250, {"uriPatterns": uri_patterns, "sources": sources})
        return pages


class AsyncPagedMethods:
    """The methods that return pages. Each iterates over the items of all of them."""

    def _pages(self, nsid: str, field: str, most: int, params: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def get_feed_skeleton(self, feed: str) -> AsyncPages[GetFeedSkeletonPost]:
        """Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part."""
        pages: AsyncPages[GetFeedSkeletonPost] = self._pages("app.bsky.feed.getFeedSkeleton", "feed", 100, {"feed": feed})
        return pages

    def get_backlink_dids(self, subject: str, source: str) -> AsyncPages[str]:
        """Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes."""
        pages: AsyncPages[str] = self._pages("blue.microcosm.links.getBacklinkDids", "linking_dids", 1000, {"subject": subject, "source": source})
        return pages

    def get_backlinks(self, subject: str, source: str, *, did: Sequence[str] | None = None, reverse: bool | None = None) -> AsyncPages[GetBacklinksLinkRecord]:
        """Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes."""
        pages: AsyncPages[GetBacklinksLinkRecord] = self._pages("blue.microcosm.links.getBacklinks", "records", 1000, {"subject": subject, "source": source, "did": did, "reverse": reverse})
        return pages

    def get_blocks(self, actor: str, direction: Literal["blocking", "blockedBy"], *, names: bool | None = None) -> AsyncPages[GetBlocksBlock]:
        """Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others."""
        pages: AsyncPages[GetBlocksBlock] = self._pages("blue.skein.graph.getBlocks", "blocks", 100, {"actor": actor, "direction": direction, "names": names})
        return pages

    def list(self, set_: str, *, exact: bool | None = None, names: bool | None = None, order: Union[Literal["newest", "oldest", "created", "id"], str] | None = None, proof: bool | None = None) -> AsyncPages[ListItem]:
        """Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers)."""
        pages: AsyncPages[ListItem] = self._pages("blue.skein.graph.list", "items", 1000, {"set": set_, "exact": exact, "names": names, "order": order, "proof": proof})
        return pages

    def query(self, set_: str, *, names: bool | None = None, proof: bool | None = None, records: bool | None = None) -> AsyncPages[str]:
        """Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more."""
        pages: AsyncPages[str] = self._pages("blue.skein.graph.query", "members", 1000, {"set": set_, "names": names, "proof": proof, "records": records})
        return pages

    def rank(self, *, by: Literal["count", "share", "lift", "score"] | None = None, damp: Number | None = None, decay: Duration | None = None, exact: bool | None = None, except_: str | None = None, min: int | None = None, names: bool | None = None, of: str | None = None, proof: bool | None = None, set_: str | None = None, since: Time | None = None, subjects_since: Time | None = None, until: Time | None = None, via: Union[Literal["follows", "followers", "likes", "reposts", "blocks", "blockers", "listblocks", "lists", "likers", "reposters", "listblockers", "listed", "authors"], str] | None = None, weigh: Literal["score"] | None = None) -> AsyncPages[RankRanked]:
        """Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A)."""
        pages: AsyncPages[RankRanked] = self._pages("blue.skein.graph.rank", "items", 1000, {"by": by, "damp": damp, "decay": decay, "exact": exact, "except": except_, "min": min, "names": names, "of": of, "proof": proof, "set": set_, "since": since, "subjectsSince": subjects_since, "until": until, "via": via, "weigh": weigh})
        return pages

    def query_labels(self, uri_patterns: Sequence[str], *, sources: Sequence[str] | None = None) -> AsyncPages[LabelsLabel]:
        """Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler."""
        pages: AsyncPages[LabelsLabel] = self._pages("com.atproto.label.queryLabels", "labels", 250, {"uriPatterns": uri_patterns, "sources": sources})
        return pages
