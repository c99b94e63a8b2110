// Requests, answers and errors.
import {forms} from './methods.js';

/** Calls a method by its NSID. */
export type Call = (nsid: string, params: object, options?: CallOptions) => Promise<unknown>;

/**
 * A failed query. Its name is the name of the server's error (InvalidRequest,
 * HandleNotFound, QueryTimeout, …), or one of the client's own:
 *
 * - Unreachable: no answer; status is 0.
 * - InvalidResponse: the answer does not come from a skein.
 * - HTTPError: an error without a name, as from a proxy.
 * - PostNotSupported: the query is too long for a URL, and the server is too old to accept
 *   queries by POST.
 */
export class SkeinError extends Error {
  /** The HTTP status, or 0 if there is none. */
  readonly status: number;
  /** The seconds that the server asks to wait, if it does. */
  readonly retryAfter: number | undefined;
  /** Whether the client repeats the call. Every method only reads, so that is safe. */
  readonly again: boolean;

  constructor(name: string, message: string, status: number, retryAfter?: number, again = [0, 429, 503].includes(status)) {
    super(message);
    this.name = name;
    this.status = status;
    this.retryAfter = retryAfter;
    this.again = again;
  }
}

/** Options of a client. */
export interface Options {
  /** Makes the requests. Default: the platform's fetch. */
  fetch?: typeof globalThis.fetch;
  /** Ends all requests and subscriptions. */
  signal?: AbortSignal;
  /** Headers of every request. */
  headers?: Record<string, string>;
  /** The token that the server's operator gave you. */
  token?: string;
  /** How often a call is repeated if the server is busy or the connection breaks. Default: 3. */
  retries?: number;
  /**
   * Is called for each answer that may be incomplete, with the reason and the method.
   * Default: console.warn, once for each reason.
   */
  onIncomplete?: (reason: string, method: string) => void;
}

/** Options of one call. */
export interface CallOptions {
  /** Ends this call. */
  signal?: AbortSignal;
}

/** Methods that accept a form use POST if their parameters have more bytes: proxies allow 8 KiB for the first line. */
const longestQuery = 7 << 10;

/** The first wait before a repetition, in seconds. Each further one is twice as long. */
const firstWait = 0.5;

/** A call is not repeated if the server asks for a longer wait, in seconds. */
const longestRetryAfter = 60;

/** How many reasons the default onIncomplete remembers. */
const maxReasons = 1000;

/** Returns a function that calls the methods of a server. */
export function caller(base: string, options: Options): Call {
  const incomplete = options.onIncomplete ?? warnOnce();
  return async (nsid, params, {signal} = {}) => {
    const link = linked(options.signal, signal);
    try {
      const answer = await repeated(options.retries ?? 3, link.signal, async () => read(base, await request(base, options, nsid, params, link.signal), link.signal));
      if (answer.incomplete === true) incomplete(String(answer.reason ?? 'the server gives no reason'), nsid); // in getStats it is a number
      return answer;
    } finally {
      link.release();
    }
  };
}

/** Returns the result of a call, which is repeated while that may help. */
async function repeated<T>(retries: number, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  let before: unknown;
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (before && (error as Error).name === 'JwtReplayed') throw before; // the first attempt used a token for one request
      before = error;
      if (!(error instanceof SkeinError && error.again && attempt < retries)) throw error;
      const {retryAfter = 0} = error;
      if (retryAfter > longestRetryAfter) throw error;
      await pause(longer(1000 * Math.max(retryAfter, firstWait * 2 ** attempt)), signal);
    }
  }
}

/** Returns a wait that is longer by up to half, so that clients do not return all at once. */
export function longer(wait: number): number {
  return wait * (1 + Math.random() / 2);
}

/** Waits for so many milliseconds, or until signal aborts. */
export function pause(wait: number, signal: AbortSignal): Promise<void> {
  return new Promise(done => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      done();
    };
    const timer = setTimeout(end, wait);
    signal.addEventListener('abort', end);
    if (signal.aborted) end();
  });
}

/** Returns the headers of every request. The token leaves authorization to the service auth token of an account. */
export function sent({headers = {}, token}: Options): Record<string, string> {
  if (!token) return headers;
  const taken = Object.keys(headers).some(name => name.toLowerCase() === 'authorization');
  return {...headers, ...(taken ? {'skein-token': token} : {authorization: 'Bearer ' + token})};
}

function warnOnce(): (reason: string, method: string) => void {
  const seen = new Set<string>();
  return (reason, method) => {
    if (seen.has(reason)) return;
    if (seen.size === maxReasons) seen.delete(seen.values().next().value!);
    seen.add(reason);
    console.warn(`skein: an answer of ${method} may be incomplete: ${reason}`);
  };
}

/** Returns a signal that aborts with any of several others, or by abort. Call release in the end. */
export function linked(...from: (AbortSignal | undefined)[]): {signal: AbortSignal; abort: (reason?: unknown) => void; release: () => void} {
  const controller = new AbortController();
  const signals = from.filter(signal => signal !== undefined);
  const end = () => controller.abort(signals.find(signal => signal.aborted)?.reason);
  for (const signal of signals) signal.addEventListener('abort', end);
  if (signals.some(signal => signal.aborted)) end();
  return {
    signal: controller.signal,
    abort: reason => controller.abort(reason),
    release: () => { for (const signal of signals) signal.removeEventListener('abort', end); },
  };
}

/** Sends a request, and returns the response unless it is an error. */
export async function request(base: string, options: Options, nsid: string, params: object, signal: AbortSignal): Promise<Response> {
  const text = encoded(nsid, params);
  const post = forms.has(nsid) && text.length > longestQuery;
  const headers = {...options.headers, ...(post && {'content-type': 'application/x-www-form-urlencoded'})};
  let response: Response;
  try {
    response = await (options.fetch ?? fetch)(`${base}/xrpc/${nsid}${post ? '' : '?' + text}`, post ? {method: 'POST', body: text, headers, signal} : {headers, signal});
  } catch (error) {
    if (signal.aborted) throw error;
    throw new SkeinError('Unreachable', `${base}: ${(error as Error).cause ?? (error as Error).message}`, 0, undefined, !isTimeout(error));
  }
  if (response.ok) return response;
  if (post && response.status === 405) {
    await response.body?.cancel();
    throw new SkeinError('PostNotSupported', `${base} does not accept ${nsid} by POST (HTTP 405), and ${text.length} bytes of parameters are too long for a URL; upgrade the server, or split the query`, 405);
  }
  const failure = await response.json().catch(() => null) as {error?: unknown; message?: unknown} | null;
  throw new SkeinError(String(failure?.error ?? 'HTTPError'), String(failure?.message ?? response.statusText), response.status, seconds(response.headers.get('retry-after')));
}

/** Reports whether Node's fetch waited too long. */
function isTimeout(error: unknown): boolean {
  return /TIMED?OUT/.test((error as {cause?: {code?: string}}).cause?.code ?? '');
}

/** Returns the seconds in a Retry-After, which may be a date. */
function seconds(after: string | null): number | undefined {
  if (!after) return undefined;
  const number = /^\d+$/.test(after) ? Number(after) : Math.max(0, (Date.parse(after) - Date.now()) / 1000);
  return Number.isNaN(number) ? undefined : number;
}

function encoded(nsid: string, params: object): string {
  if (typeof params !== 'object') throw new TypeError(`${nsid} needs its parameters in one object, such as {set: '…'}`);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) query.append(name, one instanceof Date ? one.toISOString() : String(one));
  }
  return query.toString();
}

async function read(base: string, response: Response, signal: AbortSignal): Promise<{incomplete?: unknown; reason?: unknown}> {
  let answer: unknown;
  try {
    answer = JSON.parse(await response.text());
  } catch (error) {
    if (signal.aborted) throw error;
    throw new SkeinError('InvalidResponse', `${base}: ${(error as Error).message}`, response.status, undefined, !(error instanceof SyntaxError || isTimeout(error)));
  }
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) throw new SkeinError('InvalidResponse', `${base}: the answer is not a JSON object`, response.status);
  return answer;
}
