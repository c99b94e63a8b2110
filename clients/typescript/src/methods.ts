// Generated from the lexicons by go run ./.ci/generate. Do not edit.
import type {Call, CallOptions} from './call.js';
import type {Pages} from './pages.js';

/** An act of a viewer on a post of a feed. This is Bluesky's definition, in part. */
export interface Interaction {
  /** Other events are ignored. */
  event?: 'app.bsky.feed.defs#interactionSeen' | (string & {});
  /** The AT URI of the post. */
  item?: string;
}

/** The feed pins the post. This is Bluesky's definition. */
export interface SkeletonReasonPin {
  $type: 'app.bsky.feed.defs#skeletonReasonPin';
}

export interface DescribeFeedGeneratorFeed {
  /** The AT URI of the feed's record. */
  uri: string;
}

export interface DescribeFeedGeneratorOutput {
  /** The DID of the feed generator service. */
  did: string;
  feeds: DescribeFeedGeneratorFeed[];
}

export interface GetFeedSkeletonParams {
  /** The cursor of the previous page of the same feed. */
  cursor?: string;
  /** The AT URI of the feed's record. */
  feed: string;
  limit?: number;
}

export interface GetFeedSkeletonOutput {
  /** Absent on the last page. */
  cursor?: string;
  feed: GetFeedSkeletonPost[];
}

export interface GetFeedSkeletonPost {
  /** The AT URI of a post. */
  post: string;
  /** Absent, unless the feed pins the post. */
  reason?: SkeletonReasonPin;
}

/** No account has this handle. */
export interface NotFoundActor {
  $type: 'app.bsky.graph.defs#notFoundActor';
  /** The handle in the query. */
  actor: string;
  /** Always true. */
  notFound: boolean;
}

/** The relationship between the actor and another account. This is Bluesky's definition, in part. */
export interface Relationship {
  $type: 'app.bsky.graph.defs#relationship';
  /** This account's block of the actor. */
  blockedBy?: string;
  /** A list that has the actor on it and that this account blocks. */
  blockedByList?: string;
  /** The actor's block of this account. */
  blocking?: string;
  /** A list that has this account on it and that the actor blocks. */
  blockingByList?: string;
  did: string;
  /** This account's follow of the actor. */
  followedBy?: string;
  /** The actor's follow of this account. Absent if there is none. */
  following?: string;
}

export interface GetRelationshipsParams {
  /** A DID or a handle. */
  actor: string;
  /** DIDs or handles. */
  others?: string[];
}

export interface GetRelationshipsOutput {
  /** The DID of the actor. */
  actor: string;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** One for each of others, in the same order. */
  relationships: (Relationship | NotFoundActor)[];
}

export interface GetBacklinkDidsParams {
  /** The cursor of the previous page of the same query. */
  cursor?: string;
  /** 0 returns only the total. */
  limit?: number;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** The DID or AT URI that the links lead to. */
  subject: string;
}

export interface GetBacklinkDidsOutput {
  /** null on the last page. */
  cursor: string | null;
  linking_dids: string[];
  /** The number of accounts on all pages. */
  total: number;
}

/** The record that links to the subject. */
export interface GetBacklinksLinkRecord {
  collection: string;
  /** The author of the record. */
  did: string;
  rkey: string;
}

export interface GetBacklinksParams {
  /** The cursor of the previous page of the same query. */
  cursor?: string;
  /** Return only records of these accounts. */
  did?: string[];
  /** 0 returns only the total. */
  limit?: number;
  /** Return the oldest first. */
  reverse?: boolean;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** The DID or AT URI that the links lead to. */
  subject: string;
}

export interface GetBacklinksOutput {
  /** null on the last page. */
  cursor: string | null;
  records: GetBacklinksLinkRecord[];
  /** The number of accounts with such a record, on all pages; in a collection that the server added, of records, unless more than 10,000 accounts have one. */
  total: number;
}

export interface GetBacklinksCountParams {
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** The DID or AT URI that the links lead to. */
  subject: string;
}

export interface GetBacklinksCountOutput {
  total: number;
}

export interface ContainsParams {
  /** DIDs, AT URIs or texts, the type of the set's members. A string in double quotes, as in JSON, is taken character for character. */
  member: string[];
  /** A set expression, as for query, with at most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token. */
  set: string;
}

export interface ContainsOutput {
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  /** In the order of the query. */
  members: ContainsMembership[];
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read, for each ranking or list that it sampled. */
  sample?: string;
  /** True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read. */
  sampled?: boolean;
}

export interface ContainsMembership {
  contained: boolean;
  member: string;
}

export interface CountsCountedSubject {
  subject: string;
  /** The exact numbers of members, in the order of the sets in the query. Inactive accounts do not count. */
  totals: number[];
}

export interface CountsParams {
  /** The names of the sets: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or sets of configured kinds. All take the same type of subject. */
  edge: ('follows' | 'followers' | 'likes' | 'reposts' | 'blocks' | 'blockers' | 'listblocks' | 'lists' | 'likers' | 'reposters' | 'listblockers' | 'listed' | 'authors' | (string & {}))[];
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** DIDs, AT URIs or texts, as the sets take them. A string in double quotes, as in JSON, is taken character for character. $viewer stands for the DID of the account in the service auth token. */
  subject: string[];
}

export interface CountsOutput {
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** In the order of the query. */
  subjects: CountsCountedSubject[];
}

/** The part of the network that is indexed: the members' records, and of everybody else those that name a center or its records. */
export interface Around {
  centers: string[];
  hops: number;
  lists?: string[];
  /** The number of accounts. */
  members: number;
  /** When the part was given these centers. */
  since?: string;
}

/** The evidence that an answer lacks. */
export interface Missing {
  /** Accounts whose records may be missing. */
  accounts: number;
  /** Labelers whose labels may be missing. */
  labelers: number;
  /** Lists of accounts that are missing: 1 if no list of all accounts is valid, else the number of hosts that could not be listed. */
  roster: number;
}

/** A list of all accounts of the network. All of them are indexed, or in the resync queue. */
export interface Roster {
  /** When reading the list began. */
  asOf: string;
  /** repos: the lists of all hosts of the relay. stream: the stream from its first event. archive, followed by an address. */
  source: string;
  /** Hosts whose lists could not be read. */
  unlisted?: string[];
}

export interface GetAccountParams {
  /** A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token. */
  did: string;
}

export interface GetAccountOutput {
  /** If false, no answer contains the account. */
  active: boolean;
  /** The state as a sentence. */
  description: string;
  /** Events of the account were missed. */
  desynchronized: boolean;
  did: string;
  /** Records from before the index first saw it may be missing. */
  partial: boolean;
  queued?: GetAccountQueued;
  /** The number of its indexed records, by the name of the kind (getStats). */
  records: Record<string, unknown>;
  /** The rev of its last indexed commit. */
  rev?: string;
  /** complete: all of its records are indexed. partial: records from before the index first saw it are missing. desynchronized: events were missed. queued: its repo waits to be refetched. unwritten: nothing of it is indexed at present, because a writer of the index has stopped. unverified: the stream had a gap, and the account has not been compared with the relay's list since. unknown: none of its records are indexed. */
  state: 'complete' | 'partial' | 'desynchronized' | 'queued' | 'unwritten' | 'unverified' | 'unknown' | (string & {});
  /** The time in rev. */
  time?: string;
}

/** Its repo waits to be fetched whole, or was given up. */
export interface GetAccountQueued {
  detail?: string;
  failure?: string;
  reason: string;
  since: string;
  state: 'waiting' | (string & {});
}

export interface GetBlocksBlock {
  /** The other account. */
  did: string;
  /** The lists through which one account blocks the other. */
  lists?: GetBlocksList[];
  /** True if there are more than 20 such lists; the others are left out. */
  moreLists?: boolean;
  /** The app.bsky.graph.block record, if one account blocks the other directly. */
  record?: string;
  /** The time in the key of that record, absent if the key has none. */
  time?: string;
}

export interface GetBlocksList {
  /** The list that the blocking account blocks and the blocked account is on. */
  list: string;
  /** The app.bsky.graph.listblock record. */
  listBlock: string;
  /** The time in the key of that record, absent if the key has none. */
  listBlockTime?: string;
  /** The app.bsky.graph.listitem record. */
  listItem: string;
  /** The time in the key of that record, absent if the key has none. */
  listItemTime?: string;
}

export interface GetBlocksParams {
  /** A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token. */
  actor: string;
  cursor?: string;
  /** blocking: the accounts that actor blocks. blockedBy: the accounts that block actor. */
  direction: 'blocking' | 'blockedBy';
  limit?: number;
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** Answer only about these accounts. Cannot be combined with limit and cursor. */
  others?: string[];
}

export interface GetBlocksOutput {
  /** The DID of the actor. */
  actor: string;
  /** With others, those of them that block or are blocked, in the same order. */
  blocks: GetBlocksBlock[];
  /** Absent on the last page. */
  cursor?: string;
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read. */
  sample?: string;
  /** True if there are so many blocks by lists that only a sample was read. The answer is then incomplete. */
  sampled?: boolean;
  /** The number of accounts on all pages, exact unless the answer is sampled. Absent with others. */
  total?: number;
}

/** How many random repos this server has compared with their hosts since it started. Absent if it compares none. */
export interface GetStatsAudited {
  /** Records that the index and the host did not have alike at the same revision. */
  differences: number;
  records: number;
  repos: number;
}

export interface GetStatsFailed {
  reason: string;
  repos: number;
}

export interface GetStatsKind {
  collection: string;
  /** The set of the subjects of an account. Absent if expressions have no such set. */
  forward?: string;
  /** The name in records and in metrics. */
  name: string;
  /** The type of the subject: an account, an AT URI, any URI, or any string. */
  names: 'did' | 'uri' | 'link' | 'text' | (string & {});
  /** The path of the subject in the record. */
  path: string;
  /** The set of the records that name a subject. Absent if expressions have no such set. */
  records?: string;
  /** The set of the accounts that name a subject. */
  reverse?: string;
}

export interface GetStatsLabeler {
  /** Whether all labels that it has are indexed, as far as is known. */
  current: boolean;
  /** The sequence number of the labeler's last message that is indexed. */
  cursor: number;
  did: string;
  /** Why labels may be missing. */
  reason?: string;
}

export interface GetStatsOutput {
  accounts: number;
  around?: Around;
  audited?: GetStatsAudited;
  /** Accounts with full history: all of their records are in the index, as far as is known. */
  complete: number;
  /** The last committed sequence number of the relay. Absent before the first event. */
  cursor?: number;
  /** Repos with missed events. */
  desynchronized: number;
  engine: string;
  /** Repos that were queued and then given up. */
  failed?: GetStatsFailed[];
  /** Accounts that are not active. */
  hidden: number;
  /** Active accounts with missing or doubtful records. */
  incomplete?: number;
  /** The indexed kinds of records, built-in and configured. */
  kinds: GetStatsKind[];
  /** The labelers whose labels are indexed. */
  labelers?: GetStatsLabeler[];
  /** The age of the newest event. If the stream is idle and all of it is committed, the time since the relay last proved that it is alive. Absent before the first event. */
  lagSeconds?: number;
  /** Active accounts whose changes skein may have missed since it first heard of them. */
  missed?: number;
  missing?: Missing;
  /** Repos whose history is not indexed. */
  partial: number;
  /** Why answers that depend on all accounts may be incomplete. Absent if they are complete. */
  reason?: string;
  records: GetStatsRecords;
  relay: string;
  roster?: Roster;
  /** Since when the stream has had no hole. */
  since?: string;
  /** The state of the consumer. connecting: no connection to the relay. live: everything that the relay sent is in the index, or nearly. catchingUp: the index is behind. blocked: the relay reported that the cursor is in its future, and an operator must decide. full: the disk is full, and nothing is indexed until there is space. off: this process is a query node. */
  state: 'connecting' | 'live' | 'catchingUp' | 'blocked' | 'full' | 'off' | (string & {});
  strings: GetStatsStrings;
  /** Percent of the network that nothing is indexed of at present, because a writer of the index has stopped. Absent if there is none. */
  unwritten?: number;
  version: string;
  /** Repos in the resync queue. Absent if this server fetches none. */
  waiting?: number;
}

export interface GetStatsRecords {
  block: number;
  follow: number;
  like: number;
  listblock: number;
  listitem: number;
  listitem_list: number;
  repost: number;
}

export interface GetStatsStrings {
  did: number;
  uri: number;
}

export interface HistogramBucket {
  count: number;
  start: string;
}

export interface HistogramParams {
  /** The length of a bucket: whole seconds from 1m to 30d, such as 15m, 1h or 7d. Buckets start at whole multiples of it after 1970-01-01T00:00:00Z. If absent, the server chooses 1m, 5m, 15m, 1h, 6h, 1d, 7d or 30d. */
  bucket?: string;
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** A set expression: a single set such as likers(at://…), a union or atleast of such sets, or an intersect, except, sample or by of one that comes first. It fails if the records of more than 200,000 members must be read. $viewer stands for the DID of the account in the service auth token. */
  set: string;
  /** Count only records at or after this time: RFC 3339, a date, or an age such as 24h or 7d. */
  since?: string | Date;
  /** Count only records before this time. */
  until?: string | Date;
}

export interface HistogramOutput {
  /** The length of a bucket in seconds. */
  bucketSeconds: number;
  /** In order of time, without gaps: from the bucket of the first record to the bucket of the last. */
  buckets: HistogramBucket[];
  /** Members whose records are earlier than the first bucket, because there are at most 1,000 buckets, or without bucket 120. Absent if there are none. */
  earlier?: number;
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  /** Members whose records are dated in the future; without until they have no bucket. Absent if there are none. */
  later?: number;
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read, for each ranking or list that it sampled. */
  sample?: string;
  /** True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read. */
  sampled?: boolean;
  /** The exact number of members; in the buckets, earlier, later and undated together. */
  total: number;
  type: 'did' | 'uri' | (string & {});
  /** Members whose records have no time in their keys. Absent if there are none. */
  undated?: number;
}

export interface KnownKnownSubject {
  sample: string[];
  subject: string;
  /** The exact number, whatever the limit. */
  total: number;
}

export interface KnownParams {
  /** A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token. */
  actor: string;
  /** The name of a set of accounts: followers, follows, blockers, blocks, likers, reposters, listed, listblockers, or one of a configured kind. */
  edge: 'follows' | 'followers' | 'blocks' | 'blockers' | 'likers' | 'reposters' | 'listblockers' | 'listed' | (string & {});
  /** How many accounts to name for each subject. */
  limit?: number;
  /** DIDs, AT URIs or texts, as the set takes them. A string in double quotes, as in JSON, is taken character for character. */
  subject: string[];
}

export interface KnownOutput {
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** In the order of the query. */
  subjects: KnownKnownSubject[];
}

/** The fields of com.atproto.label.defs#label. */
export interface LabelsLabel {
  /** The version of the record, if the label is on one. */
  cid?: string;
  /** When the label was made. */
  cts: string;
  /** When it expires. */
  exp?: string;
  /** The labeler. */
  src: string;
  /** The account or record. */
  uri: string;
  /** The value. */
  val: string;
}

export interface LabelsParams {
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** DIDs and AT URIs. $viewer stands for the DID of the account in the service auth token. */
  subject: string[];
}

export interface LabelsOutput {
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  /** By subject, labeler and value. */
  labels: LabelsLabel[];
  missing?: Missing;
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
}

export interface ListItem {
  /** With order=created: the time in the member's own key. Absent if the key has none. */
  created?: string;
  member: string;
  /** The record that makes the edge, absent if none does. Of several sets united, the newest one. Of several for one set, the first one after the subject by their keys, or else the last one before it. */
  record?: string;
  /** With order=size(NAME): the number of members of the member's own set NAME. */
  size?: number;
  /** The time in the record's key. Absent if the key has none. */
  time?: string;
}

export interface ListParams {
  /** The cursor of the previous page of the same set in the same order. */
  cursor?: string;
  /** Fail instead of sorting or ranking a sample. */
  exact?: boolean;
  limit?: number;
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** newest (default) or oldest: by the times of the records, those without a time or dated ahead of now last; the set must be a single one, a union or atleast of such sets, each of whose members then has the newest of its records, or an intersect, except, sample or by of one that comes first. created: records by the times in their own keys, the newest first. id: a stable order without times, the default of other expressions. size(NAME): by the number of members of each member's own set, such as size(followers), the largest first; of more than 20,000 members (1,000 by lists, listed, replies and quotes), a sample. */
  order?: 'newest' | 'oldest' | 'created' | 'id' | (string & {});
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** A set expression, as for query, such as intersect(likers(POST), follows(A)). $viewer stands for the DID of the account in the service auth token. */
  set: string;
}

export interface ListOutput {
  /** Absent on the last page. */
  cursor?: string;
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  items: ListItem[];
  missing?: Missing;
  /** The order of the items. Instead of newest or oldest it is id for sets that are too large to be sorted by time. */
  order: string;
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read, for each ranking or list that it sampled. */
  sample?: string;
  /** True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read. */
  sampled?: boolean;
  /** The exact size of the set, on every page. */
  total: number;
  type: 'did' | 'uri' | (string & {});
}

export interface OverlapParams {
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** Set expressions, all of DIDs or all of AT URIs, with at most 64 sets and 8 rankings together. $viewer stands for the DID of the account in the service auth token. */
  set: string[];
  /** One more set, to compare with each: the last of totals and pairs. */
  with?: string;
}

export interface OverlapOutput {
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** A row for each set: how many of its members are in each of the sets. */
  pairs: OverlapRow[];
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read, for each ranking that it sampled. */
  sample?: string;
  /** True if a ranking in the sets exceeded its budget and read a sample. The numbers are then estimates. Absent if everything was read. */
  sampled?: boolean;
  /** The exact sizes of the sets, in the order of the query. Inactive accounts do not count. */
  totals: number[];
  type: 'did' | 'uri' | (string & {});
}

/** How many members of a set are in each of the sets, in the order of the query. */
export type OverlapRow = number[];

export interface PathParams {
  /** A DID, or a handle with a leading @. $viewer stands for the DID of the account in the service auth token. */
  from: string;
  /** The most follows in the chain. */
  max?: number;
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** Likewise. */
  to: string;
}

export interface PathOutput {
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  missing?: Missing;
  /** The accounts, from the first to the last: each follows the next. Empty if no chain is that short. */
  path: string[];
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
}

export interface QueryParams {
  /** Return only the total, without members and cursor. */
  count?: boolean;
  /** The cursor of the previous page of the same set. */
  cursor?: string;
  limit?: number;
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** Return the record that makes the edge with each member. Works only for a single set. */
  records?: boolean;
  /** A set expression. Sets of accounts: follows(A), followers(A), mutuals(A), blocks(A), blockers(A), likers(POST), reposters(POST), listed(LIST), listblockers(LIST); blocking(A) and blockedBy(A), through lists, too. Sets of records: likes(A), reposts(A), lists(A) that A is on, listblocks(A). A is a DID, or a handle with a leading @; POST and LIST are AT URIs or bsky.app URLs. Combine sets of one type: intersect(E, E), union(E, E), except(E, E), atleast(2, E, E, E), sample(E, N); authors(E) of records; by(E, ACCOUNTS), the records in E that they created. A set may have a time window for its records: likes(A, since=24h), since=2026-11-01, until=2026-11-22T06:00:00Z. A ranking is a set, too: rank(of=likes(A), via=likers, top=300). At most 64 sets and 32 levels. $viewer stands for the DID of the account in the service auth token. */
  set: string;
}

export interface QueryOutput {
  /** Absent on the last page. */
  cursor?: string;
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  members?: string[];
  missing?: Missing;
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** With records=true: the record that makes the edge, by member. If there are several, the first one after the subject by their keys, or else the last one before it. */
  records?: string[];
  /** The part that skein read, for each ranking or list that it sampled. */
  sample?: string;
  /** True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read. */
  sampled?: boolean;
  /** The exact size of the set, on every page. */
  total: number;
  type: 'did' | 'uri' | (string & {});
}

export interface RankParams {
  /** The order. count: how many members of the set have an edge to the result. share: their share of all accounts that have one. lift: how many times more they are than by chance. Of more than 20,000 results, only those with the highest counts are scored. score: by weigh, damp and decay, the 20,000 highest; the default if one of them is given. */
  by?: 'count' | 'share' | 'lift' | 'score';
  /** The cursor of the previous page. Each page reads the current index, so a result whose rank changes meanwhile may appear twice or not at all. */
  cursor?: string;
  /** A number from 0 to 1. The score of a result is divided by this power of the number of all accounts (or subjects) with the edge to it, so that what is popular anyway counts for less. If there are more than 20,000 results (5,000 if via leads to accounts that link to a member, as likers and followers do), only those with the highest scores before the division remain. */
  damp?: string | number;
  /** The half-life of an edge, such as 6h or 7d: an edge that is so old adds half as much to the score. */
  decay?: string;
  /** Fail instead of reading a sample. A ranking then reads up to 67 million edges. */
  exact?: boolean;
  /** An expression for a set of results to leave out. */
  except?: string;
  limit?: number;
  /** The lowest count of a result. The default is 1, or 5 for share and lift. */
  min?: number;
  /** Return the handles of the accounts, and of the authors of the records, that are known or can be looked up within two seconds. */
  names?: boolean;
  /** An expression for a set, as for query. Without set, of and via are required. */
  of?: string;
  /** Return what proves that the answer is complete. */
  proof?: boolean;
  /** A whole ranking, rank(…) or blend(…), instead of of, via and what comes with them. blend(3, rank(of=E, via=likes), 1, rank(of=E, via=reposts)) is a weighted sum. $viewer stands for the DID of the account in the service auth token. */
  set?: string;
  /** Use only records with a time in their key from then on: RFC 3339, a date, or an age such as 24h or 7d. */
  since?: string | Date;
  /** If the results are records, return only those with a time in their key from then on. */
  subjectsSince?: string | Date;
  /** Use only records with a time in their key before then. */
  until?: string | Date;
  /** The name of a set that takes one of the members: of accounts follows, followers, likes, reposts, blocks, blockers, listblocks, lists; of URIs likers, reposters, listblockers, listed, authors; or a set of a configured kind. */
  via?: 'follows' | 'followers' | 'likes' | 'reposts' | 'blocks' | 'blockers' | 'listblocks' | 'lists' | 'likers' | 'reposters' | 'listblockers' | 'listed' | 'authors' | (string & {});
  /** Weigh each member of the set by its score there, divided by the highest one. The set must be rank(…) with top. */
  weigh?: 'score';
}

export interface RankOutput {
  /** For share and lift: the number of active accounts. */
  accounts?: number;
  /** Absent on the last page. */
  cursor?: string;
  /** With names=true: handles by DID, verified in both directions. */
  handles?: Record<string, unknown>;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  items: RankRanked[];
  missing?: Missing;
  /** For share and lift: the number of accounts in the set. */
  of?: number;
  /** With proof=true, if the answer is complete: since when the stream has had no hole (since; absent if all events are older, as in a recording), the time of the newest event (through), what was read (sources), on how many accounts the answer depends, or "everybody" (accounts), and the time of the oldest evidence (oldest). */
  proof?: Record<string, unknown>;
  /** Why the answer may be incomplete. */
  reason?: string;
  /** The part that skein read, for each ranking or list that it sampled. */
  sample?: string;
  /** True if a ranking in the query exceeded its budget and read a sample, or if list sorted a sample by size. Counts, scores and members are then estimates. Absent if everything was read. */
  sampled?: boolean;
  type: 'did' | 'uri' | (string & {});
}

export interface RankRanked {
  /** How many members lead to the result; of blend(…), the sum of the counts of its rankings. */
  count: number;
  /** For lift: (count / of) / (total / accounts), in millionths. 1950000 means 1.95 times chance. */
  lift?: number;
  member: string;
  /** For score: the score, in billionths, rounded. */
  score?: number;
  /** For share: count / total, in millionths. */
  share?: number;
  /** For share, lift and damp: the number of all accounts with an edge to the result. If via leads to the accounts that created the records, the number of such records that the result has. */
  total?: number;
}

export interface SubscribeChange {
  cursor: string;
  entered?: string[];
  left?: string[];
  /** Ask for the set again. The value says why: the cursor is too old, too much changed at once, or the client's subscriptions cost too much. */
  reset?: string;
  /** In the first message: the type of the members. */
  type?: 'did' | 'uri' | (string & {});
}

export interface SubscribeParams {
  /** The cursor of the last message received. The changes since then follow. The server keeps the last thousand messages for two minutes. */
  cursor?: string;
  /** A set expression with at most 8 sets, without time windows. $viewer stands for the DID of the account in the service auth token. */
  set: string;
}

export interface QueryLabelsParams {
  /** The cursor of the previous page. */
  cursor?: string;
  limit?: number;
  /** Optional list of label sources (DIDs) to filter on. */
  sources?: string[];
  /** List of AT URI patterns to match (boolean 'OR'). Each may be a prefix (ending with '*'; will match inclusive of the string leading to '*'), or a full URI, or a DID. A prefix names accounts by their DIDs. */
  uriPatterns: string[];
}

export interface QueryLabelsOutput {
  /** Absent on the last page. With a prefix, a page may have fewer labels than limit, or none, before the last. */
  cursor?: string;
  /** True if the answer may be incomplete, absent if everything that it depends on is indexed. */
  incomplete?: boolean;
  labels: LabelsLabel[];
  missing?: Missing;
  /** Why the answer may be incomplete. */
  reason?: string;
}

/** The methods that a server also accepts as a form, by POST. */
export const forms: ReadonlySet<string> = new Set(['blue.skein.graph.contains', 'blue.skein.graph.counts', 'blue.skein.graph.getBlocks', 'blue.skein.graph.histogram', 'blue.skein.graph.known', 'blue.skein.graph.list', 'blue.skein.graph.overlap', 'blue.skein.graph.query', 'blue.skein.graph.rank']);

/** The methods of a server. */
export class Methods {
  protected readonly call: Call;

  constructor(call: Call) {
    this.call = call;
  }

  /** Lists the feeds in the server's --feeds file. This is Bluesky's method, in part. */
  describeFeedGenerator(params: Record<string, never> = {}, options?: CallOptions): Promise<DescribeFeedGeneratorOutput> {
    return this.call('app.bsky.feed.describeFeedGenerator', params, options) as Promise<DescribeFeedGeneratorOutput>;
  }

  /** Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part. */
  getFeedSkeleton(params: GetFeedSkeletonParams, options?: CallOptions): Promise<GetFeedSkeletonOutput> {
    return this.call('app.bsky.feed.getFeedSkeleton', params, options) as Promise<GetFeedSkeletonOutput>;
  }

  /** Returns the follows and blocks between an account and others, with the records. This is Bluesky's method, in part. */
  getRelationships(params: GetRelationshipsParams, options?: CallOptions): Promise<GetRelationshipsOutput> {
    return this.call('app.bsky.graph.getRelationships', params, options) as Promise<GetRelationshipsOutput>;
  }

  /** Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes. */
  getBacklinkDids(params: GetBacklinkDidsParams, options?: CallOptions): Promise<GetBacklinkDidsOutput> {
    return this.call('blue.microcosm.links.getBacklinkDids', params, options) as Promise<GetBacklinkDidsOutput>;
  }

  /** Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes. */
  getBacklinks(params: GetBacklinksParams, options?: CallOptions): Promise<GetBacklinksOutput> {
    return this.call('blue.microcosm.links.getBacklinks', params, options) as Promise<GetBacklinksOutput>;
  }

  /** Counts the accounts that link to a subject. In a collection that the server added, it counts their records, unless more than 10,000 accounts have one. This is Constellation's method, for the collections that this server indexes. */
  getBacklinksCount(params: GetBacklinksCountParams, options?: CallOptions): Promise<GetBacklinksCountOutput> {
    return this.call('blue.microcosm.links.getBacklinksCount', params, options) as Promise<GetBacklinksCountOutput>;
  }

  /** Tells for each of the given strings whether it is a member of a set. Does A follow B? set=follows(A), member=B. */
  contains(params: ContainsParams, options?: CallOptions): Promise<ContainsOutput> {
    return this.call('blue.skein.graph.contains', params, options) as Promise<ContainsOutput>;
  }

  /** Counts the members of several sets of each subject, such as the likers, reposters and quoters of a hundred posts. */
  counts(params: CountsParams, options?: CallOptions): Promise<CountsOutput> {
    return this.call('blue.skein.graph.counts', params, options) as Promise<CountsOutput>;
  }

  /** Describes an account in the index, and says in state whether all of its records are there, or what may be missing. */
  getAccount(params: GetAccountParams, options?: CallOptions): Promise<GetAccountOutput> {
    return this.call('blue.skein.graph.getAccount', params, options) as Promise<GetAccountOutput>;
  }

  /** Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others. */
  getBlocks(params: GetBlocksParams, options?: CallOptions): Promise<GetBlocksOutput> {
    return this.call('blue.skein.graph.getBlocks', params, options) as Promise<GetBlocksOutput>;
  }

  /** Describes the contents of the index, and how current it is. If reason is there, it says why sets that depend on everybody, such as followers and likers, may be incomplete. */
  getStats(params: Record<string, never> = {}, options?: CallOptions): Promise<GetStatsOutput> {
    return this.call('blue.skein.graph.getStats', params, options) as Promise<GetStatsOutput>;
  }

  /** Counts the members of a set by time, such as the likes of a post by the hour. How many followers did A gain a day? set=followers(A), bucket=1d. The time of a member is that of the record that makes it a member, as list shows it. */
  histogram(params: HistogramParams, options?: CallOptions): Promise<HistogramOutput> {
    return this.call('blue.skein.graph.histogram', params, options) as Promise<HistogramOutput>;
  }

  /** Lists, for each subject, the accounts that an actor follows and that are in a set of the subject, such as its followers, its likers, or the accounts on it, if it is a list; total says how many. Which of these posts have the most likers among those I follow? actor=ME, edge=likers, subject=each post. */
  known(params: KnownParams, options?: CallOptions): Promise<KnownOutput> {
    return this.call('blue.skein.graph.known', params, options) as Promise<KnownOutput>;
  }

  /** Lists the labels of accounts and records that are in effect, by the labelers that the server reads (getStats). */
  labels(params: LabelsParams, options?: CallOptions): Promise<LabelsOutput> {
    return this.call('blue.skein.graph.labels', params, options) as Promise<LabelsOutput>;
  }

  /** Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers). */
  list(params: ListParams, options?: CallOptions): Promise<ListOutput> {
    return this.call('blue.skein.graph.list', params, options) as Promise<ListOutput>;
  }

  /** Counts the members of up to 20 sets, and of what each two of them have in common. How many followers do A and B share? set=followers(A), set=followers(B). */
  overlap(params: OverlapParams, options?: CallOptions): Promise<OverlapOutput> {
    return this.call('blue.skein.graph.overlap', params, options) as Promise<OverlapOutput>;
  }

  /** Finds a shortest chain of follows from one account to another. How close are A and B? from=A, to=B. */
  path(params: PathParams, options?: CallOptions): Promise<PathOutput> {
    return this.call('blue.skein.graph.path', params, options) as Promise<PathOutput>;
  }

  /** Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more. */
  query(params: QueryParams, options?: CallOptions): Promise<QueryOutput> {
    return this.call('blue.skein.graph.query', params, options) as Promise<QueryOutput>;
  }

  /** Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A). */
  rank(params: RankParams, options?: CallOptions): Promise<RankOutput> {
    return this.call('blue.skein.graph.rank', params, options) as Promise<RankOutput>;
  }

  /** Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler. */
  queryLabels(params: QueryLabelsParams, options?: CallOptions): Promise<QueryLabelsOutput> {
    return this.call('com.atproto.label.queryLabels', params, options) as Promise<QueryLabelsOutput>;
  }
}

/** Iterates over the items, in a field, of the pages of a method, of most items each. */
export type Walk = (nsid: string, field: string, most: number, params: object, options?: CallOptions) => unknown;

/** The methods that return pages. Each iterates over the items of all of them. */
export class PagedMethods {
  protected readonly walk: Walk;

  constructor(walk: Walk) {
    this.walk = walk;
  }

  /** Returns a page of a feed in the server's --feeds file. This is Bluesky's method, in part. */
  getFeedSkeleton(params: Omit<GetFeedSkeletonParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<GetFeedSkeletonPost, GetFeedSkeletonOutput> {
    return this.walk('app.bsky.feed.getFeedSkeleton', 'feed', 100, params, options) as Pages<GetFeedSkeletonPost, GetFeedSkeletonOutput>;
  }

  /** Lists the accounts that link to a subject, newest link first. This is Constellation's method, for the collections that this server indexes. */
  getBacklinkDids(params: Omit<GetBacklinkDidsParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<string, GetBacklinkDidsOutput> {
    return this.walk('blue.microcosm.links.getBacklinkDids', 'linking_dids', 1000, params, options) as Pages<string, GetBacklinkDidsOutput>;
  }

  /** Lists the records that link to a subject, newest first. This is Constellation's method, for the collections that this server indexes. */
  getBacklinks(params: Omit<GetBacklinksParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<GetBacklinksLinkRecord, GetBacklinksOutput> {
    return this.walk('blue.microcosm.links.getBacklinks', 'records', 1000, params, options) as Pages<GetBacklinksLinkRecord, GetBacklinksOutput>;
  }

  /** Lists the accounts that an account blocks, or that block it, directly or through lists, with the records that do. To check particular accounts, name them in others. */
  getBlocks(params: Omit<GetBlocksParams, 'cursor' | 'limit' | 'others'>, options?: CallOptions): Pages<GetBlocksBlock, GetBlocksOutput> {
    return this.walk('blue.skein.graph.getBlocks', 'blocks', 100, params, options) as Pages<GetBlocksBlock, GetBlocksOutput>;
  }

  /** Lists the members of a set in an order: by time, by id, or by the sizes of sets of their own. If records make the members what they are, each has its record. Who followed A last? set=followers(A). Which of a post's likers have the most followers? set=likers(POST), order=size(followers). */
  list(params: Omit<ListParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<ListItem, ListOutput> {
    return this.walk('blue.skein.graph.list', 'items', 1000, params, options) as Pages<ListItem, ListOutput>;
  }

  /** Lists the members of a set of accounts (DIDs) or records (AT URIs). Who follows both A and B? set=intersect(followers(A), followers(B)). Which of those I follow like a post? set=intersect(follows(ME), likers(POST)). Who blocks A through a list? set=rank(of=lists(A), via=listblockers). An answer that may lack something has incomplete=true and the reason; getStats and getAccount say more. */
  query(params: Omit<QueryParams, 'count' | 'cursor' | 'limit'>, options?: CallOptions): Pages<string, QueryOutput> {
    return this.walk('blue.skein.graph.query', 'members', 1000, params, options) as Pages<string, QueryOutput>;
  }

  /** Ranks what the members of a set lead to. It follows an edge from every member, and counts how often each result occurs, highest count first. Each member counts once for a result. What do those I follow like this week that I have not liked? of=follows(ME), via=likes, since=7d, except=likes(ME). Whose posts do I like most? of=likes(ME), via=authors. Who is like A? of=followers(A), via=follows, by=lift, except=members(A). */
  rank(params: Omit<RankParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<RankRanked, RankOutput> {
    return this.walk('blue.skein.graph.rank', 'items', 1000, params, options) as Pages<RankRanked, RankOutput>;
  }

  /** Find labels relevant to the provided AT-URI patterns: those in effect, by the labelers that the server reads (getStats), without signatures. To verify a label, ask its labeler. */
  queryLabels(params: Omit<QueryLabelsParams, 'cursor' | 'limit'>, options?: CallOptions): Pages<LabelsLabel, QueryLabelsOutput> {
    return this.walk('com.atproto.label.queryLabels', 'labels', 250, params, options) as Pages<LabelsLabel, QueryLabelsOutput>;
  }
}
