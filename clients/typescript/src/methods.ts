// Made from the lexicons by go run ./clients/generate. Do not edit.

export interface ContainsParams {
  /** DIDs or AT URIs, of the type of the set. */
  member: string[];
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. */
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
  /** A DID, or a handle with an @ before it. */
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
  /** All of its records are indexed; what it did before the index heard of it is not; something was missed; nothing is known that it did. */
  state: 'complete' | 'partial' | 'desynchronized' | 'unknown' | (string & {});
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
  /** One leaf, such as likers(at://…) or follows(did:plc:…, since=7d). */
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
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). At most 64 leaves, at most 32 deep. A leaf takes a window of the times of the records: likes(did:plc:…, since=24h), until=2026-11-22T06:00:00Z, since=2026-11-01. */
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
  /** An expression of a set of DIDs. */
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
  /** Why the set is to be asked for anew: the cursor is too old, or too much has changed at once. */
  reset?: string;
  /** Of the first message: what the set is of. */
  type?: 'did' | 'uri' | (string & {});
}

export interface SubscribeParams {
  /** That of the last message that was received: what has changed since follows. The last thousand messages are kept for two minutes. */
  cursor?: string;
  /** A set expression of at most 8 leaves, without windows. */
  set: string;
}

/** What is asked of a server: a method by its NSID, with parameters. */
export type Call = (nsid: string, params: object) => Promise<unknown>;

/** The methods. */
export class Methods {
  protected readonly call: Call;

  constructor(call: Call) {
    this.call = call;
  }

  /** Which of the given strings are members of a set. */
  contains(params: ContainsParams): Promise<ContainsOutput> {
    return this.call('blue.skein.graph.contains', params) as Promise<ContainsOutput>;
  }

  /** What the index has of one account, and what it lacks. */
  getAccount(params: GetAccountParams): Promise<GetAccountOutput> {
    return this.call('blue.skein.graph.getAccount', params) as Promise<GetAccountOutput>;
  }

  /** What the index holds, and how fresh it is. */
  getStats(): Promise<GetStatsOutput> {
    return this.call('blue.skein.graph.getStats', {}) as Promise<GetStatsOutput>;
  }

  /** Of the people that an actor follows: who also follows, likes or reposts each of the subjects. */
  known(params: KnownParams): Promise<KnownOutput> {
    return this.call('blue.skein.graph.known', params) as Promise<KnownOutput>;
  }

  /** The members of one set, each with the record that makes the edge, the newest first. */
  list(params: ListParams): Promise<ListOutput> {
    return this.call('blue.skein.graph.list', params) as Promise<ListOutput>;
  }

  /** The members of a set of DIDs or of AT URIs. */
  query(params: QueryParams): Promise<QueryOutput> {
    return this.call('blue.skein.graph.query', params) as Promise<QueryOutput>;
  }

  /** Expands every member of a set of DIDs along an edge, and counts how often each result occurs, highest first. An actor counts once for a result. */
  rank(params: RankParams): Promise<RankOutput> {
    return this.call('blue.skein.graph.rank', params) as Promise<RankOutput>;
  }
}
