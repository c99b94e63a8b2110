// Made from the lexicons by go run ./clients/generate. Do not edit.
import type {Call, CallOptions} from './call.js';

export interface DescribeFeedGeneratorFeed {
  /** The AT URI of the feed's record. */
  uri: string;
}

export interface DescribeFeedGeneratorOutput {
  /** The DID of the feeds' service. */
  did: string;
  feeds: DescribeFeedGeneratorFeed[];
}

export interface GetFeedSkeletonParams {
  /** From the page before, for the same feed. */
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
}

/** No account has this handle. */
export interface NotFoundActor {
  $type: 'app.bsky.graph.defs#notFoundActor';
  /** The handle, as given. */
  actor: string;
  /** Always true. */
  notFound: boolean;
}

/** How the actor and one other account stand to each other. Bluesky's definition, as far as skein answers it. */
export interface Relationship {
  $type: 'app.bsky.graph.defs#relationship';
  /** The record by which this account blocks the actor. */
  blockedBy?: string;
  /** The list by which this account blocks the actor. */
  blockedByList?: string;
  /** The record by which the actor blocks this account. */
  blocking?: string;
  /** The list by which the actor blocks this account. */
  blockingByList?: string;
  did: string;
  /** The record by which this account follows the actor. */
  followedBy?: string;
  /** The record by which the actor follows this account. Absent if it does not. */
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
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  /** Why it is incomplete. */
  reason?: string;
  /** In the order of others. */
  relationships: (Relationship | NotFoundActor)[];
}

export interface GetBacklinkDidsParams {
  /** From the page before, for the same question. */
  cursor?: string;
  /** 0: only the total. */
  limit?: number;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** A DID or an AT URI, that of what is linked to. */
  subject: string;
}

export interface GetBacklinkDidsOutput {
  /** null on the last page. */
  cursor: string | null;
  linking_dids: string[];
  /** How many accounts, whatever the page. */
  total: number;
}

/** The record that links to the subject. */
export interface GetBacklinksLinkRecord {
  collection: string;
  /** Whose record it is. */
  did: string;
  rkey: string;
}

export interface GetBacklinksParams {
  /** From the page before, for the same question. */
  cursor?: string;
  /** Only the records of these accounts. */
  did?: string[];
  /** 0: only the total. */
  limit?: number;
  /** The oldest first. */
  reverse?: boolean;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** A DID or an AT URI, that of what is linked to. */
  subject: string;
}

export interface GetBacklinksOutput {
  /** null on the last page. */
  cursor: string | null;
  records: GetBacklinksLinkRecord[];
  /** How many accounts have such a record, whatever the page. */
  total: number;
}

export interface GetBacklinksCountParams {
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** A DID or an AT URI, that of what is linked to. */
  subject: string;
}

export interface GetBacklinksCountOutput {
  total: number;
}

export interface GetManyToManyItem {
  linkRecord: GetBacklinksLinkRecord;
  /** What the record names at the other path. */
  otherSubject: string;
}

export interface GetManyToManyParams {
  /** From the page before, for the same question. */
  cursor?: string;
  limit?: number;
  /** Only the records of these accounts. */
  linkDid?: string[];
  /** Only these, at the other path. */
  otherSubject?: string[];
  /** The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject. */
  pathToOther: string;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** A DID or an AT URI, that of what is linked to. */
  subject: string;
}

export interface GetManyToManyOutput {
  /** null on the last page. */
  cursor: string | null;
  items: GetManyToManyItem[];
}

export interface GetManyToManyCountsCount {
  /** How many accounts these are of. */
  distinct: number;
  /** What the records name at the other path. */
  subject: string;
  /** How many records. */
  total: number;
}

export interface GetManyToManyCountsParams {
  /** From the page before, for the same question. */
  cursor?: string;
  /** Only the records of these accounts. */
  did?: string[];
  limit?: number;
  /** Only these, at the other path. */
  otherSubject?: string[];
  /** The path, in the same records, of the other thing that they name: list, for app.bsky.graph.listitem:subject. */
  pathToOther: string;
  /** A collection and a path in its records, such as app.bsky.feed.like:subject.uri. */
  source: string;
  /** A DID or an AT URI, that of what is linked to. */
  subject: string;
}

export interface GetManyToManyCountsOutput {
  counts_by_other_subject: GetManyToManyCountsCount[];
  /** null on the last page. */
  cursor: string | null;
}

export interface ContainsParams {
  /** DIDs or AT URIs, of the type of the set. */
  member: string[];
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. $viewer stands for the DID of who asks, by a service auth token. */
  set: string;
}

export interface ContainsOutput {
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  /** In the order asked. */
  members: ContainsMembership[];
  /** Why it is incomplete. */
  reason?: string;
}

export interface ContainsMembership {
  contained: boolean;
  member: string;
}

export interface GetAccountParams {
  /** A DID, or a handle with an @ before it. $viewer stands for the DID of who asks, by a service auth token. */
  did: string;
}

export interface GetAccountOutput {
  /** If not, it is in no answer. */
  active: boolean;
  /** The same as a sentence. */
  description: string;
  /** Something that it did was missed. */
  desynchronized: boolean;
  did: string;
  /** What it did before the index heard of it may not be indexed. */
  partial: boolean;
  queued?: GetAccountQueued;
  /** How many records of it are indexed, by the kind's name (getStats). */
  records: Record<string, unknown>;
  /** Of its last commit that is indexed. */
  rev?: string;
  /** All of its records are indexed; what it did before the index heard of it is not; something was missed; its repo waits to be fetched again; the stream had a gap, and the account has not been compared with the relay's list since; nothing is known that it did. */
  state: 'complete' | 'partial' | 'desynchronized' | 'queued' | 'unverified' | 'unknown' | (string & {});
  /** What rev says. */
  time?: string;
}

/** Its repo is to be fetched whole, or was given up. */
export interface GetAccountQueued {
  detail?: string;
  failure?: string;
  reason: string;
  since: string;
  state: 'waiting' | (string & {});
}

export interface GetStatsFailed {
  reason: string;
  repos: number;
}

export interface GetStatsKind {
  collection: string;
  /** The set of what an account names. Absent if it has no name in expressions. */
  forward?: string;
  /** In records, and in metrics. */
  name: string;
  /** What stands there. */
  names: 'did' | 'uri' | (string & {});
  /** Where in the record that stands which the edge goes to. */
  path: string;
  /** The set of who names it. */
  reverse?: string;
}

export interface GetStatsOutput {
  accounts: number;
  /** Repos whose records are all in the index, as far as is known. */
  complete: number;
  /** The last sequence number of the relay that is committed. Absent before the first event. */
  cursor?: number;
  /** Repos of which something was missed. */
  desynchronized: number;
  engine: string;
  /** Repos that were queued and have been given up. */
  failed?: GetStatsFailed[];
  /** Accounts that are not active. */
  hidden: number;
  /** Active accounts of which something is missing or in doubt. */
  incomplete?: number;
  /** What is indexed: that which is built in, and that which the store is configured with. */
  kinds: GetStatsKind[];
  /** The age of that event; where the stream is idle and all of it is committed, the time since the relay last proved that it is alive. Absent before the first event, and where state is off. */
  lagSeconds?: number;
  /** Repos whose past was never seen. */
  partial: number;
  records: GetStatsRecords;
  relay: string;
  /** What the consumer is doing: there is no connection to the relay; all that the relay sent is in the index, or nearly; it is being caught up with; the relay said that our cursor lies in its future, and an operator must decide; this process only answers. */
  state: 'connecting' | 'live' | 'catchingUp' | 'blocked' | 'off' | (string & {});
  strings: GetStatsStrings;
  version: string;
  /** Repos that are queued to be fetched whole. Absent where none is fetched. */
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

export interface KnownKnownSubject {
  sample: string[];
  subject: string;
  /** Exact, whatever the limit. */
  total: number;
}

export interface KnownParams {
  /** $viewer stands for the DID of who asks, by a service auth token. */
  actor: string;
  edge: 'followers' | 'likers' | 'reposters';
  /** How many of them are named, for each subject. */
  limit?: number;
  /** DIDs for sets of DIDs such as followers, AT URIs for others such as likers. */
  subject: string[];
}

export interface KnownOutput {
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  /** Why it is incomplete. */
  reason?: string;
  /** In the order asked. */
  subjects: KnownKnownSubject[];
}

export interface ListItem {
  member: string;
  /** Of several, the first after the subject, as their keys say; if none is, the last before it. */
  record: string;
  /** That the record's key says; absent if it says none. */
  time?: string;
}

export interface ListParams {
  /** From the page before, for the same set. */
  cursor?: string;
  limit?: number;
  /** One leaf, such as likers(at://…) or follows(did:plc:…, since=7d). $viewer stands for the DID of who asks, by a service auth token. */
  set: string;
}

export interface ListOutput {
  /** Absent on the last page. */
  cursor?: string;
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  items: ListItem[];
  /** newest: by the records' times, the newest first. id: of more than 10,000 who have an edge to a subject, or 200,000 subjects, by no time, but stably. */
  order: 'newest' | 'id' | (string & {});
  /** Why it is incomplete. */
  reason?: string;
  /** Exact, whatever the page. */
  total: number;
  type: 'did' | 'uri' | (string & {});
}

export interface QueryParams {
  /** Only the total: no members, no cursor. */
  count?: boolean;
  /** From the page before, for the same set. */
  cursor?: string;
  limit?: number;
  /** With each member the record that makes the edge. Only of a set that is one leaf. */
  records?: boolean;
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. A leaf takes a window of the times of the records: likes(did:plc:…, since=24h), until=2026-11-22T06:00:00Z, since=2026-11-01. $viewer stands for the DID of who asks, by a service auth token. */
  set: string;
}

export interface QueryOutput {
  /** Absent on the last page. */
  cursor?: string;
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  members?: string[];
  /** Why it is incomplete. */
  reason?: string;
  /** With records=true: by member, the record that makes the edge; of several the first after the subject, as their keys say. */
  records?: string[];
  /** Exact, whatever the page. */
  total: number;
  type: 'did' | 'uri' | (string & {});
}

export interface RankParams {
  /** What is ranked by: how many of the set have an edge to the result; which share they are of all who have one; or how many times as many as chance would give. Of more than 20,000 results those with the highest counts are scored. */
  by?: 'count' | 'share' | 'lift';
  /** From the page before. Pages are of the index as it is then: a result whose place changes meanwhile may come twice, or not. */
  cursor?: string;
  /** An expression of a set, of the type of the results, that are left out. */
  except?: string;
  limit?: number;
  /** The lowest count of a result: 1, and by share or lift 5, unless it is given. */
  min?: number;
  /** An expression of a set of DIDs. $viewer stands for the DID of who asks, by a service auth token. */
  of: string;
  /** Go only along records whose keys say a time from then on: RFC 3339, a date, or an age such as 24h or 7d. */
  since?: string;
  /** Of results that are records, those whose keys say a time from then on. */
  subjectsSince?: string;
  /** And before then. */
  until?: string;
  /** A set of an account: one of these, or one that the store is configured with. */
  via: 'follows' | 'followers' | 'likes' | 'reposts' | 'blocks' | 'blockers' | 'listblocks' | (string & {});
}

export interface RankOutput {
  /** By share or lift: how many accounts there are. */
  accounts?: number;
  /** Absent on the last page. */
  cursor?: string;
  /** Something may be missing in the answer: absent if all that it rests on is indexed. */
  incomplete?: boolean;
  items: RankRanked[];
  /** By share or lift: how many accounts the set has. */
  of?: number;
  /** Why it is incomplete. */
  reason?: string;
  type: 'did' | 'uri' | (string & {});
}

export interface RankRanked {
  count: number;
  /** By lift: (count / of) / (total / accounts), how many times as many as chance would give, in millionths. */
  lift?: number;
  member: string;
  /** By share: count / total, in millionths. */
  share?: number;
  /** By share or lift: how many have an edge to it in all, at any time. */
  total?: number;
}

export interface SubscribeChange {
  cursor: string;
  entered?: string[];
  left?: string[];
  /** Why the set is to be asked for anew: the cursor is too old, too much has changed at once, or the subscriptions of the client cost too much to work out. */
  reset?: string;
  /** Of the first message: what the set is of. */
  type?: 'did' | 'uri' | (string & {});
}

export interface SubscribeParams {
  /** That of the last message that was received: what has changed since follows. The last thousand messages are kept for two minutes. */
  cursor?: string;
  /** A set expression of at most 8 leaves, without windows. $viewer stands for the DID of who asks, by a service auth token. */
  set: string;
}

/** The methods that a server also takes by POST, as a form. */
export const forms: ReadonlySet<string> = new Set(['blue.skein.graph.contains', 'blue.skein.graph.known', 'blue.skein.graph.list', 'blue.skein.graph.query', 'blue.skein.graph.rank']);

/** The methods of a server. */
export class Methods {
  protected readonly call: Call;

  constructor(call: Call) {
    this.call = call;
  }

  /** The feeds that this server has in its --feeds file. Bluesky's method, as far as skein answers it. */
  describeFeedGenerator(params: Record<string, never> = {}, options?: CallOptions): Promise<DescribeFeedGeneratorOutput> {
    return this.call('app.bsky.feed.describeFeedGenerator', params, options) as Promise<DescribeFeedGeneratorOutput>;
  }

  /** A page of a feed that this server has in its --feeds file. Bluesky's method, as far as skein answers it. */
  getFeedSkeleton(params: GetFeedSkeletonParams, options?: CallOptions): Promise<GetFeedSkeletonOutput> {
    return this.call('app.bsky.feed.getFeedSkeleton', params, options) as Promise<GetFeedSkeletonOutput>;
  }

  /** How one account stands to others: who follows and who blocks whom, with the records. Bluesky's method, as far as skein answers it. */
  getRelationships(params: GetRelationshipsParams, options?: CallOptions): Promise<GetRelationshipsOutput> {
    return this.call('app.bsky.graph.getRelationships', params, options) as Promise<GetRelationshipsOutput>;
  }

  /** The accounts that link to a subject, the newest link first. Constellation's method, for what this server indexes. */
  getBacklinkDids(params: GetBacklinkDidsParams, options?: CallOptions): Promise<GetBacklinkDidsOutput> {
    return this.call('blue.microcosm.links.getBacklinkDids', params, options) as Promise<GetBacklinkDidsOutput>;
  }

  /** The records that link to a subject, the newest first. Constellation's method, for what this server indexes. */
  getBacklinks(params: GetBacklinksParams, options?: CallOptions): Promise<GetBacklinksOutput> {
    return this.call('blue.microcosm.links.getBacklinks', params, options) as Promise<GetBacklinksOutput>;
  }

  /** How many accounts link to a subject. Constellation's method, for what this server indexes. */
  getBacklinksCount(params: GetBacklinksCountParams, options?: CallOptions): Promise<GetBacklinksCountOutput> {
    return this.call('blue.microcosm.links.getBacklinksCount', params, options) as Promise<GetBacklinksCountOutput>;
  }

  /** The records that name a subject, each with what it names at another path. Constellation's method, for what this server indexes. */
  getManyToMany(params: GetManyToManyParams, options?: CallOptions): Promise<GetManyToManyOutput> {
    return this.call('blue.microcosm.links.getManyToMany', params, options) as Promise<GetManyToManyOutput>;
  }

  /** What the records that name a subject name at another path, with the number of records of each. Constellation's method, for what this server indexes. */
  getManyToManyCounts(params: GetManyToManyCountsParams, options?: CallOptions): Promise<GetManyToManyCountsOutput> {
    return this.call('blue.microcosm.links.getManyToManyCounts', params, options) as Promise<GetManyToManyCountsOutput>;
  }

  /** Which of the given strings are members of a set. */
  contains(params: ContainsParams, options?: CallOptions): Promise<ContainsOutput> {
    return this.call('blue.skein.graph.contains', params, options) as Promise<ContainsOutput>;
  }

  /** What the index has of one account, and what it lacks. */
  getAccount(params: GetAccountParams, options?: CallOptions): Promise<GetAccountOutput> {
    return this.call('blue.skein.graph.getAccount', params, options) as Promise<GetAccountOutput>;
  }

  /** What the index holds, and how fresh it is. */
  getStats(params: Record<string, never> = {}, options?: CallOptions): Promise<GetStatsOutput> {
    return this.call('blue.skein.graph.getStats', params, options) as Promise<GetStatsOutput>;
  }

  /** Of the people that an actor follows: who also follows, likes or reposts each of the subjects. */
  known(params: KnownParams, options?: CallOptions): Promise<KnownOutput> {
    return this.call('blue.skein.graph.known', params, options) as Promise<KnownOutput>;
  }

  /** The members of one set, each with the record that makes the edge, the newest first. */
  list(params: ListParams, options?: CallOptions): Promise<ListOutput> {
    return this.call('blue.skein.graph.list', params, options) as Promise<ListOutput>;
  }

  /** The members of a set of DIDs or of AT URIs. */
  query(params: QueryParams, options?: CallOptions): Promise<QueryOutput> {
    return this.call('blue.skein.graph.query', params, options) as Promise<QueryOutput>;
  }

  /** Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result. */
  rank(params: RankParams, options?: CallOptions): Promise<RankOutput> {
    return this.call('blue.skein.graph.rank', params, options) as Promise<RankOutput>;
  }
}
