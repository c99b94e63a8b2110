// Watches that last: a subscription whose place is stored.
import type {Skein} from './index.js';
import type {SubscribeChange, SubscribeParams} from './methods.js';
import type {SubscribeOptions} from './subscription.js';

/** A change of a watched set. */
export interface WatchChange {
  type: 'entered' | 'left';
  member: string;
}

/** Where a watch keeps its place. */
export interface WatchState {
  /** Returns what save stored last, null if nothing. */
  load(): Promise<string | null>;
  /** Stores a text in place of the one before. */
  save(text: string): Promise<void>;
}

/** The parameters of watch. */
export interface WatchParams {
  /** A set expression. */
  set: string;
  /** The path of a file, in Node, or something else that keeps a text. */
  state: string | WatchState;
}

/** How many members a watch keeps at most. */
const maxWatched = 50_000;

interface Place {
  set: string;
  cursor: string;
  /** The reported members. */
  members: string[];
  /** Changes that may not have been reported. */
  pending: WatchChange[];
}

/** Subscribes, as changes does. */
type Subscribe = (params: SubscribeParams, prepare: (change: SubscribeChange) => Promise<void>) => AsyncGenerator<SubscribeChange, void, undefined>;

/** Tells each change of a set, over restarts. */
export async function* watch(server: Pick<Skein, 'count' | 'members'>, subscribe: Subscribe, {set, state}: WatchParams, options: SubscribeOptions): AsyncGenerator<WatchChange, void, undefined> {
  const kept = typeof state === 'string' ? inFile(state) : state;
  const stored = await kept.load();
  const place: Place = stored === null ? {set, cursor: '', members: [], pending: []} : JSON.parse(stored);
  if (place.set !== set) throw new TypeError(`the state is that of another set, ${place.set}`);
  const told = new Set(place.members);
  const save = () => kept.save(JSON.stringify({...place, members: [...told]}));
  const tell = async function* () {
    if (place.pending.length === 0) return;
    await save();
    try {
      for (; place.pending.length > 0; place.pending.shift()) yield place.pending[0]!;
    } finally {
      await save();
    }
  };
  yield* tell();
  const bound = (total: number) => { if (total > maxWatched) throw new RangeError(`the set has ${total} members, and a watch that lasts keeps at most ${maxWatched}`); };
  const compare = async (change: SubscribeChange) => {
    if (change.reset === undefined && place.cursor !== '') return;
    const {total} = await server.count({set}, options), now = new Set<string>();
    bound(total);
    for await (const member of server.members({set}, options)) now.add(member);
    change.entered = [...now];
    change.left = [...told].filter(member => !now.has(member));
  };
  for await (const {cursor, entered = [], left = []} of subscribe({set, ...(place.cursor && {cursor: place.cursor})}, compare)) {
    const begins = place.cursor === '';
    for (const member of left) if (told.delete(member)) place.pending.push({type: 'left', member});
    for (const member of entered) {
      if (!told.has(member) && !begins) place.pending.push({type: 'entered', member});
      told.add(member);
    }
    bound(told.size);
    place.cursor = cursor;
    if (begins) await save();
    yield* tell();
  }
}

/** Keeps a text in a file, which is replaced at once. */
function inFile(path: string): WatchState {
  const files: Promise<Files> = import('node:fs/promises' as string);
  return {
    load: async () => (await files).readFile(path, 'utf8').catch((error: {code?: string}) => {
      if (error.code === 'ENOENT') return null;
      throw error;
    }),
    save: async text => {
      await (await files).writeFile(path + '.new', text, {flush: true});
      await (await files).rename(path + '.new', path);
    },
  };
}

interface Files {
  readFile(path: string, encoding: 'utf8'): Promise<string>;
  writeFile(path: string, text: string, options: {flush: boolean}): Promise<void>;
  rename(from: string, to: string): Promise<void>;
}
