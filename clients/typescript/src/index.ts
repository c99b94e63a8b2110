/**
 * A client of skein (https://…/xrpc/blue.skein.graph.*): sets, rankings, records and changes.
 *
 *     const skein = new Skein('http://127.0.0.1:3210');
 *     for await (const did of skein.members({set: `intersect(followers(${a}), followers(${b}))`})) …
 *
 * Every method takes its parameters as one object, and options such as {signal} as a second one.
 */
import {caller, sent, type CallOptions, type Options} from './call.js';
import {Methods, PagedMethods, type ListItem, type ListOutput, type QueryOutput, type SubscribeChange, type SubscribeParams} from './methods.js';
import {Pages} from './pages.js';
import {changes, type SubscribeOptions} from './subscription.js';
import {watch, type WatchChange, type WatchParams} from './watch.js';

export {SkeinError, type CallOptions, type Options} from './call.js';
export * from './methods.js';
export {Pages} from './pages.js';
export type {SubscribeOptions} from './subscription.js';
export type {WatchChange, WatchParams, WatchState} from './watch.js';

/** The parameters of members, records and count. */
export interface SetParams {
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). */
  set: string;
}

/** The number of members of a set. */
export interface Count {
  total: number;
  /** Whether total may lack members. */
  incomplete: boolean;
  /** Why it may. */
  reason?: string;
}

/** A server. */
export class Skein extends Methods {
  /** The server's address. */
  readonly base: string;
  /** The methods that return pages. Each iterates over the items of all of them. */
  readonly pages: PagedMethods;
  private readonly options: Options;

  constructor(base = 'http://127.0.0.1:3210', options: Options = {}) {
    if (!/^https?:\/\/./.test(base)) throw new TypeError(`server address '${base}' does not start with http:// or https://`);
    const address = base.replace(/\/$/, '');
    options = {...options, headers: sent(options)};
    const call = caller(address, options);
    super(call);
    this.base = address;
    this.options = options;
    this.pages = new PagedMethods((nsid, field, most, params, callOptions) => new Pages(asked => call(nsid, {...params, ...asked}, callOptions) as Promise<object>, field, most));
  }

  /** Iterates over all members of a set, page by page. With names, handles has the handles that are known. */
  members({set, names}: SetParams & {names?: boolean}, options?: CallOptions): Pages<string, QueryOutput> {
    return this.pages.query({set, ...(names && {names})}, options);
  }

  /** Counts the members of a set. */
  async count({set}: SetParams, options?: CallOptions): Promise<Count> {
    const {total, incomplete = false, reason} = await this.query({set, count: true}, options);
    return {total, incomplete, ...(reason !== undefined && {reason})};
  }

  /** Iterates over all members of a set that come from one set, with their records, newest first, page by page. */
  records({set}: SetParams, options?: CallOptions): Pages<ListItem & {record: string}, ListOutput> {
    return this.pages.list({set, order: 'newest'}, options) as Pages<ListItem & {record: string}, ListOutput>;
  }

  /**
   * Streams the members that enter and leave a set, from now on or after a cursor. It reconnects
   * when the connection breaks, and misses nothing: if the server does not know what changed
   * meanwhile, a change has reset.
   */
  subscribe(params: SubscribeParams, options: SubscribeOptions = {}): AsyncGenerator<SubscribeChange, void, undefined> {
    return changes(this.base, this.options, params, options);
  }

  /**
   * Tells each change of a set from its first run on. It keeps its place in a state, such as a file, so that a
   * later run tells what has changed since. A change that you were handling when the program ended comes again.
   */
  watch(params: WatchParams, options: SubscribeOptions = {}): AsyncGenerator<WatchChange, void, undefined> {
    return watch(this, (from, prepare) => changes(this.base, this.options, from, options, prepare), params, options);
  }
}
