// Checks what the types accept and reject, by tsc --strict --noEmit test/types.ts. Never executed.
import {Skein, SkeinError, type ListItem, type Pages, type QueryOutput, type RankRanked} from 'skein-blue';

export async function all(skein: Skein, signal: AbortSignal): Promise<void> {
  const pages: Pages<string> = skein.members({set: 'x'}, {signal});
  for await (const did of pages) did.toUpperCase();
  const top: RankRanked[] = await skein.pages.rank({of: 'x', via: 'likes', since: new Date()}, {signal}).first(3);
  const last: QueryOutput | undefined = skein.pages.query({set: 'x'}).page;
  // @ts-expect-error: first(3)
  skein.pages.query({set: 'x', limit: 3});
  const after: number | undefined = new SkeinError('x', 'y', 503).retryAfter;
  const missing: boolean = pages.incomplete, why: string | undefined = pages.reason;
  const {total, incomplete, reason} = await skein.count({set: 'x'});
  for await (const item of skein.records({set: 'x'})) f(item);
  for await (const change of skein.subscribe({set: 'x', cursor: 'y'}, {signal, onRetry: (error: SkeinError, wait: number) => console.log(error.name, wait)})) (change.entered ?? []).map(did => did.length);
  for (const r of (await skein.getRelationships({actor: 'x', others: ['y']})).relationships) {
    if (r.$type === 'app.bsky.graph.defs#relationship') r.following?.length;
    else r.actor.length;
    // @ts-expect-error: only one of the two types has it
    r.following;
  }
  const {cursor} = await skein.getBacklinks({subject: 'x', source: 'y', reverse: true}, {signal});
  // @ts-expect-error: null on the last page
  cursor.length;
  await skein.getStats({}, {signal});
  // @ts-expect-error: parameters must be in one object
  await skein.query('x');
  // @ts-expect-error: parameters must be in one object
  skein.members('x');
  await skein.rank({of: 'x', via: 'likes', damp: 0.5, since: new Date(), until: '1h'});
  // @ts-expect-error: not a time
  await skein.rank({of: 'x', via: 'likes', since: 0.5});
  // @ts-expect-error: unknown parameter
  await skein.rank({of: 'x', via: 'likes', sicne: '1h'});
  await skein.known({actor: 'x', edge: 'quoters', subject: ['y']}); // of a configured kind
  new Skein('http://x', {token: 'x', retries: 0, headers: {authorization: 'x'}, onIncomplete: (reason: string, method: string) => console.log(reason, method)});
  f(top[0]?.member, last?.total, after, missing, why, total, incomplete, reason);
}

function f(..._: (ListItem | boolean | string | number | undefined)[]): void {}
