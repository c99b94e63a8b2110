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

  constructor(name: string, message: string, status: number) {
    super(message);
    this.name = name;
    this.status = status;
  }
}

/** Options of a client. */
export interface Options {
  /** Makes the requests. Default: the platform's fetch. */
  fetch?: typeof globalThis.fetch;
  /** Ends all requests and subscriptions. */
  signal?: AbortSignal;
  /** Headers of every request, such as {authorization: 'Bearer …'}. */
  headers?: Record<string, string>;
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

/** Methods that accept a form use POST if their parameters have more bytes. */
const longestQuery = 8 << 10;

/** How many reasons the default onIncomplete remembers. */
const maxReasons = 1000;

/** Returns a function that calls the methods of a server. */
export function caller(base: string, options: Options): Call {
  const incomplete = options.onIncomplete ?? warnOnce();
  return async (nsid, params, {signal} = {}) => {
    const link = linked(options.signal, signal);
    try {
      const answer = await read(base, await request(base, options, nsid, params, link.signal), link.signal);
      if (answer.incomplete === true) incomplete(String(answer.reason ?? 'the server gives no reason'), nsid); // in getStats it is a number
      return answer;
    } finally {
      link.release();
    }
  };
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
    throw new SkeinError('Unreachable', `${base}: ${(error as Error).cause ?? (error as Error).message}`, 0);
  }
  if (response.ok) return response;
  if (post && response.status === 405) {
    await response.body?.cancel();
    throw new SkeinError('PostNotSupported', `${base} does not accept ${nsid} by POST (HTTP 405), and ${text.length} bytes of parameters are too long for a URL; upgrade the server, or split the query`, 405);
  }
  const failure = await response.json().catch(() => null) as {error?: unknown; message?: unknown} | null;
  throw new SkeinError(String(failure?.error ?? 'HTTPError'), String(failure?.message ?? response.statusText), response.status);
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
    answer = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new SkeinError('InvalidResponse', `${base}: ${(error as Error).message}`, response.status);
  }
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) throw new SkeinError('InvalidResponse', `${base}: the answer is not a JSON object`, response.status);
  return answer;
}
