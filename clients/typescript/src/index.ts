/**
 * Asks a skein (https://…/xrpc/blue.skein.graph.*): sets, rankings, records, and what changes.
 *
 *     const skein = new Skein('http://127.0.0.1:3210');
 *     for await (const did of skein.members(`intersect(followers(${a}), followers(${b}))`)) …
 */
import {Methods, type ListItem, type SubscribeChange} from './methods.js';

export * from './methods.js';

/** An answer that is an error: InvalidRequest, HandleNotFound, QueryTimeout, …; Unreachable, with status 0; or InvalidResponse, of what is no skein's. */
export class SkeinError extends Error {
  readonly status: number;

  constructor(name: string, message: string, status: number) {
    super(message);
    this.name = name;
    this.status = status;
  }
}

export interface Options {
  /** What requests are made with; the platform's fetch if absent. */
  fetch?: typeof globalThis.fetch;
  /** Ends all requests. */
  signal?: AbortSignal;
}

/** What subscribe does besides. */
export interface SubscribeOptions {
  /** Ends it. */
  signal?: AbortSignal;
  /** Is told why the connection broke, and in how many milliseconds it comes back. */
  onRetry?: (error: unknown, wait: number) => void;
}

/** How long a subscription may be silent: the server says that it is alive every 15 seconds. */
const silence = 45_000;

export class Skein extends Methods {
  /** The server's address. */
  readonly base: string;
  private readonly options: Options;

  constructor(base = 'http://127.0.0.1:3210', options: Options = {}) {
    const address = base.replace(/\/$/, '');
    super((nsid, params) => get(address, options, nsid, params));
    this.base = address;
    this.options = options;
  }

  /** All members of a set, page after page. */
  async *members(set: string): AsyncGenerator<string> {
    for (let cursor: string | undefined; ; ) {
      const page = await this.query({set, limit: 1000, ...(cursor && {cursor})});
      yield* page.members ?? [];
      if (!(cursor = page.cursor)) return;
    }
  }

  /** How many members a set has. */
  async count(set: string): Promise<number> {
    return (await this.query({set, count: true})).total;
  }

  /** All members of one set with the records behind them, the newest first, page after page. */
  async *records(set: string): AsyncGenerator<ListItem> {
    for (let cursor: string | undefined; ; ) {
      const page = await this.list({set, limit: 1000, ...(cursor && {cursor})});
      yield* page.items;
      if (!(cursor = page.cursor)) return;
    }
  }

  /**
   * What enters and leaves a set, from now on, or after a cursor. It comes back by itself when
   * the connection breaks, and misses nothing, or says so (reset).
   */
  async *subscribe(set: string, cursor?: string, {signal = this.options.signal, onRetry}: SubscribeOptions = {}): AsyncGenerator<SubscribeChange> {
    for (let wait = 500; !signal?.aborted; wait = Math.min(2 * wait, 30_000)) {
      const connection = new AbortController();
      const stop = () => connection.abort();
      signal?.addEventListener('abort', stop);
      let error: unknown = new SkeinError('Unreachable', 'the connection ended', 0);
      try {
        const response = await request(this.base, this.options, 'blue.skein.graph.subscribe', {set, ...(cursor && {cursor})}, connection.signal);
        for await (const change of events(response, stop)) {
          cursor = change.cursor;
          wait = 500;
          yield change;
        }
      } catch (e) {
        error = e;
        // It will not be better.
        if (e instanceof SkeinError && (e.status === 501 || e.status >= 400 && e.status < 500 && e.status !== 408 && e.status !== 429)) throw e;
      } finally {
        stop();
        signal?.removeEventListener('abort', stop);
      }
      if (signal?.aborted) return;
      onRetry?.(error, wait);
      await pause(wait, signal);
    }
  }
}

/** Waits, unless it is ended. */
function pause(wait: number, signal?: AbortSignal): Promise<void> {
  return new Promise(done => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      done();
    };
    const timer = setTimeout(end, wait);
    signal?.addEventListener('abort', end);
  });
}

async function request(base: string, options: Options, nsid: string, params: object, signal = options.signal): Promise<Response> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) query.append(name, String(one));
  }
  let response: Response;
  try {
    response = await (options.fetch ?? fetch)(`${base}/xrpc/${nsid}?${query}`, signal ? {signal} : {});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new SkeinError('Unreachable', `${base}: ${(error as Error).cause ?? (error as Error).message}`, 0);
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null) as {error?: string; message?: string} | null;
  throw new SkeinError(said?.error ?? 'HTTPError', said?.message ?? response.statusText, response.status);
}

async function get(base: string, options: Options, nsid: string, params: object): Promise<unknown> {
  const response = await request(base, options, nsid, params);
  try {
    return await response.json();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new SkeinError('InvalidResponse', `${base}: ${(error as Error).message}`, response.status);
  }
}

/** The messages of a stream of server-sent events; one that is silent for too long is stopped. */
async function* events(response: Response, stop: () => void): AsyncGenerator<SubscribeChange> {
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  try {
    for (let text = ''; ; ) {
      const timer = setTimeout(stop, silence);
      const {done, value} = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      text += decoder.decode(value, {stream: true});
      const blocks = text.split('\n\n');
      text = blocks.pop()!;
      for (const block of blocks) {
        const lines = block.split('\n');
        const data = lines.find(line => line.startsWith('data: '));
        if (!data) continue;
        if (lines.includes('event: error')) return; // it is told to come back
        yield JSON.parse(data.slice('data: '.length)) as SubscribeChange;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
