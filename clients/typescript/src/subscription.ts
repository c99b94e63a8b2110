// Subscriptions: server-sent events, with reconnection.
import {linked, longer, pause, request, SkeinError, type CallOptions, type Options} from './call.js';
import type {SubscribeChange, SubscribeParams} from './methods.js';

/** Options of a subscription. */
export interface SubscribeOptions extends CallOptions {
  /** Is called when the connection breaks, with the reason and the milliseconds until the client reconnects. */
  onRetry?: (error: SkeinError, wait: number) => void;
}

/** How long a stream may be silent. A server sends something every 15 seconds. */
const silence = 45_000;

/**
 * Streams the changes of a set, over as many connections as it takes. Each is passed to prepare before: if that
 * fails, the change comes again.
 */
export async function* changes(base: string, options: Options, {set, cursor}: SubscribeParams, {signal, onRetry}: SubscribeOptions, prepare?: (change: SubscribeChange) => Promise<void>): AsyncGenerator<SubscribeChange, void, undefined> {
  const ends = linked(options.signal, signal);
  try {
    for (let wait = 500; !ends.signal.aborted; wait = Math.min(2 * wait, 30_000)) {
      const connection = linked(ends.signal);
      const silent = () => connection.abort(new SkeinError('Unreachable', `${base}: no data for ${silence / 1000} s`, 0));
      const timer = setTimeout(silent, silence);
      let error = new SkeinError('Unreachable', `${base}: the connection ended`, 0);
      try {
        const response = await request(base, options, 'blue.skein.graph.subscribe', {set, ...(cursor && {cursor})}, connection.signal).finally(() => clearTimeout(timer));
        for await (const change of events(base, response, silent)) {
          await prepare?.(change);
          cursor = change.cursor;
          wait = 500;
          yield change;
        }
      } catch (caught) {
        if (ends.signal.aborted) return;
        const e = connection.signal.reason ?? caught;
        if (!(e instanceof SkeinError) || isFinal(e.status)) throw e;
        error = e;
      } finally {
        connection.release();
        connection.abort();
      }
      if (ends.signal.aborted) return;
      const next = longer(Math.max(wait, 1000 * (error.retryAfter ?? 0)));
      onRetry?.(error, next);
      await pause(next, ends.signal);
    }
  } finally {
    ends.release();
  }
}

/** Reports whether a retry would fail with the same error. */
function isFinal(status: number): boolean {
  return status === 501 || status >= 400 && status < 500 && status !== 408 && status !== 429;
}

/** Reads a stream of server-sent events, and calls silent after too long a silence. */
async function* events(base: string, response: Response, silent: () => void): AsyncGenerator<SubscribeChange, void, undefined> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) throw new SkeinError('InvalidResponse', `${base}: the answer is not a stream of events`, response.status);
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  const broke = (error: Error) => { throw new SkeinError('Unreachable', `${base}: ${error.message}`, 0); };
  try {
    for (let text = ''; ; ) {
      const timer = setTimeout(silent, silence);
      const {done, value} = await reader.read().catch(broke).finally(() => clearTimeout(timer));
      if (done) return;
      text += decoder.decode(value, {stream: true});
      const blocks = text.split('\n\n');
      text = blocks.pop()!;
      for (const block of blocks) {
        const lines = block.split('\n');
        const data = lines.find(line => line.startsWith('data: '))?.slice('data: '.length);
        if (data !== undefined) yield change(base, data, lines.includes('event: error'));
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Parses the data of an event. An error event has the reason why the server ends the stream. */
function change(base: string, data: string, isError: boolean): SubscribeChange {
  let event: Partial<SubscribeChange> & {error?: string; message?: string} | null;
  try {
    event = JSON.parse(data);
  } catch {
    event = null;
  }
  if (isError && event) throw new SkeinError(event.error ?? 'HTTPError', event.message ?? 'the server ended the stream', 0);
  if (typeof event?.cursor !== 'string') throw new SkeinError('InvalidResponse', `${base}: an event is not a change with a cursor`, 200);
  return event as SubscribeChange;
}
