// Subscriptions: server-sent events, and coming back when they break off.
import {linked, request, SkeinError, type CallOptions, type Options} from './call.js';
import type {SubscribeChange, SubscribeParams} from './methods.js';

/** How a subscription is made. */
export interface SubscribeOptions extends CallOptions {
  /** Is called when the connection broke: why, and in how many milliseconds the client connects again. */
  onRetry?: (error: SkeinError, wait: number) => void;
}

/** How long a stream may be silent: a server sends something every 15 seconds. */
const silence = 45_000;

/** The changes of a set, over as many connections as it takes. */
export async function* changes(base: string, options: Options, {set, cursor}: SubscribeParams, {signal, onRetry}: SubscribeOptions): AsyncGenerator<SubscribeChange, void, undefined> {
  const ends = linked(options.signal, signal);
  try {
    for (let wait = 500; !ends.signal.aborted; wait = Math.min(2 * wait, 30_000)) {
      const connection = linked(ends.signal);
      let error = new SkeinError('Unreachable', `${base}: the connection ended`, 0);
      try {
        const response = await request(base, options, 'blue.skein.graph.subscribe', {set, ...(cursor && {cursor})}, connection.signal);
        for await (const change of events(base, response, connection.abort)) {
          cursor = change.cursor;
          wait = 500;
          yield change;
        }
      } catch (e) {
        if (ends.signal.aborted) return;
        if (!(e instanceof SkeinError)) error = new SkeinError('Unreachable', `${base}: ${(e as Error).message}`, 0);
        else if (isFinal(e.status)) throw e;
        else error = e;
      } finally {
        connection.release();
        connection.abort();
      }
      if (ends.signal.aborted) return;
      onRetry?.(error, wait);
      await pause(wait, ends.signal);
    }
  } finally {
    ends.release();
  }
}

/** Whether an error would be the same the next time. */
function isFinal(status: number): boolean {
  return status === 501 || status >= 400 && status < 500 && status !== 408 && status !== 429;
}

/** Waits, until it is over or ended. */
function pause(wait: number, signal: AbortSignal): Promise<void> {
  return new Promise(done => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      done();
    };
    const timer = setTimeout(end, wait);
    signal.addEventListener('abort', end);
  });
}

/** The messages of a stream of server-sent events. One that is silent for too long is aborted. */
async function* events(base: string, response: Response, abort: (reason: unknown) => void): AsyncGenerator<SubscribeChange, void, undefined> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) throw new SkeinError('InvalidResponse', `${base}: the answer is not a stream of events`, response.status);
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  const silent = () => abort(new SkeinError('Unreachable', `${base}: nothing came for ${silence / 1000} s`, 0));
  try {
    for (let text = ''; ; ) {
      const timer = setTimeout(silent, silence);
      const {done, value} = await reader.read().finally(() => clearTimeout(timer));
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

/** Reads the data of an event. An error event says why the server ends the stream. */
function change(base: string, data: string, isError: boolean): SubscribeChange {
  let said: Partial<SubscribeChange> & {error?: string; message?: string} | null;
  try {
    said = JSON.parse(data);
  } catch {
    said = null;
  }
  if (isError && said) throw new SkeinError(said.error ?? 'HTTPError', said.message ?? 'the server ended the stream', 0);
  if (typeof said?.cursor !== 'string') throw new SkeinError('InvalidResponse', `${base}: an event is not a change with a cursor`, 200);
  return said as SubscribeChange;
}
