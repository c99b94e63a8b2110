/**
 * A client of skein (https://…/xrpc/blue.skein.graph.*): sets, rankings, records, and what changes.
 *
 *     const skein = new Skein('http://127.0.0.1:3210');
 *     for await (const did of skein.members({set: `intersect(followers(${a}), followers(${b}))`})) …
 *
 * Every method takes its parameters in one object, and as the second argument how the call
 * is made: {signal}.
 */
import {caller, type CallOptions, type Options} from './call.js';
import {Methods, type ListItem, type SubscribeChange, type SubscribeParams} from './methods.js';
import {Pages} from './pages.js';
import {changes, type SubscribeOptions} from './subscription.js';

export {SkeinError, type CallOptions, type Options} from './call.js';
export * from './methods.js';
export {Pages} from './pages.js';
export type {SubscribeOptions} from './subscription.js';

/** What members, records and count are asked about. */
export interface SetParams {
  /** A set expression, such as intersect(followers(did:plc:…), followers(did:plc:…)). */
  set: string;
}

/** How many members a set has. */
export interface Count {
  total: number;
  /** Whether members may be missing in total. */
  incomplete: boolean;
  /** Why. */
  reason?: string;
}

/** A server. */
export class Skein extends Methods {
  /** The server's address. */
  readonly base: string;
  private readonly options: Options;

  constructor(base = 'http://127.0.0.1:3210', options: Options = {}) {
    if (!/^https?:\/\/./.test(base)) throw new TypeError(`the server's address is '${base}'; it must begin with http:// or https://`);
    const address = base.replace(/\/$/, '');
    super(caller(address, options));
    this.base = address;
    this.options = options;
  }

  /** All members of a set, page after page. */
  members({set}: SetParams, options?: CallOptions): Pages<string> {
    return new Pages(async cursor => {
      const page = await this.query({set, limit: 1000, ...(cursor && {cursor})}, options);
      return {...page, items: page.members ?? []};
    });
  }

  /** How many members a set has. */
  async count({set}: SetParams, options?: CallOptions): Promise<Count> {
    const {total, incomplete = false, reason} = await this.query({set, count: true}, options);
    return {total, incomplete, ...(reason !== undefined && {reason})};
  }

  /** All members of one set with the records behind them, the newest first, page after page. */
  records({set}: SetParams, options?: CallOptions): Pages<ListItem> {
    return new Pages(cursor => this.list({set, limit: 1000, ...(cursor && {cursor})}, options));
  }

  /**
   * What enters and leaves a set, from now on, or after a cursor. It connects again when the
   * connection breaks, and misses nothing: where the server cannot tell what changed meanwhile,
   * a change has reset.
   */
  subscribe(params: SubscribeParams, options: SubscribeOptions = {}): AsyncGenerator<SubscribeChange, void, undefined> {
    return changes(this.base, this.options, params, options);
  }
}
