// How a server is asked: requests, answers, errors.
import {forms} from './methods.js';

/** Calls a method, by its NSID, with parameters. */
export type Call = (nsid: string, params: object, options?: CallOptions) => Promise<unknown>;

/**
 * A question that failed. Its name is that of the server's error (InvalidRequest,
 * HandleNotFound, QueryTimeout, …), or one of the client's own:
 *
 * - Unreachable: no answer came; status is 0.
 * - InvalidResponse: what answered is not a skein.
 * - HTTPError: an error without a name, as a proxy answers.
 * - PostNotSupported: the question is too long for a URL, and the server is too old to take
 *   questions by POST.
 */
export class SkeinError extends Error {
  /** The HTTP status, or 0 where there is none. */
  readonly status: number;

  constructor(name: string, message: string, status: number) {
    super(message);
    this.name = name;
    this.status = status;
  }
}

/** How a server is asked. */
export interface Options {
  /** What makes the requests. Default: the platform's fetch. */
  fetch?: typeof globalThis.fetch;
  /** Ends all requests and subscriptions. */
  signal?: AbortSignal;
  /** Headers of every request, such as {authorization: 'Bearer …'}. */
  headers?: Record<string, string>;
  /**
   * Is called with each answer that may be incomplete: why, and which method answered it.
   * Default: console.warn, once for each reason.
   */
  onIncomplete?: (reason: string, method: string) => void;
}

/** How one call is made. */
export interface CallOptions {
  /** Ends this call. */
  signal?: AbortSignal;
}

/** From how many bytes of parameters on a method that takes a form is asked by POST. */
const longestQuery = 8 << 10;

/** How many reasons the default of onIncomplete remembers. */
const reasonsKept = 1000;

/** Returns what calls the methods of a server. */
export function caller(base: string, options: Options): Call {
  const incomplete = options.onIncomplete ?? warnOnce();
  return async (nsid, params, {signal} = {}) => {
    const link = linked(options.signal, signal);
    try {
      const answer = await read(base, await request(base, options, nsid, params, link.signal), link.signal);
      if (answer.incomplete === true) incomplete(String(answer.reason ?? 'the server does not say why'), nsid); // getStats has a number
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
    if (seen.size === reasonsKept) seen.delete(seen.values().next().value!);
    seen.add(reason);
    console.warn(`skein: an answer of ${method} may be incomplete: ${reason}`);
  };
}

/** A signal that any of several ends, and abort. Call release when it is not needed any more. */
export function linked(...from: (AbortSignal | undefined)[]): {signal: AbortSignal; abort: (reason?: unknown) => void; release: () => void} {
  const controller = new AbortController();
  const given = from.filter(signal => signal !== undefined);
  const end = () => controller.abort(given.find(signal => signal.aborted)?.reason);
  for (const signal of given) signal.addEventListener('abort', end);
  if (given.some(signal => signal.aborted)) end();
  return {
    signal: controller.signal,
    abort: reason => controller.abort(reason),
    release: () => { for (const signal of given) signal.removeEventListener('abort', end); },
  };
}

/** Asks, and returns the response if it is no error. */
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
    throw new SkeinError('PostNotSupported', `${base} does not take ${nsid} by POST (HTTP 405), and the parameters, ${text.length} bytes, are too long for a URL: upgrade the server, or ask in several parts`, 405);
  }
  const said = await response.json().catch(() => null) as {error?: unknown; message?: unknown} | null;
  throw new SkeinError(String(said?.error ?? 'HTTPError'), String(said?.message ?? response.statusText), response.status);
}

function encoded(nsid: string, params: object): string {
  if (typeof params !== 'object') throw new TypeError(`${nsid} takes its parameters in one object, such as {set: '…'}`);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) query.append(name, String(one));
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
