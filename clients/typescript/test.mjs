// node test.mjs SERVER ACCOUNT-THAT-MANY-FOLLOW: the client, against a running server.
import assert from 'node:assert/strict';
import {createServer} from 'node:http';
import {Skein, SkeinError} from 'skein-client';

const [base, star] = process.argv.slice(2);
const skein = new Skein(base);
const set = `followers(${star})`;

const members = [];
for await (const did of skein.members(set)) members.push(did);
assert.ok(members.length > 100, `${members.length} members`);
assert.equal(new Set(members).size, members.length);
assert.ok(await skein.count(set) >= members.length);
let records = 0;
for await (const item of skein.records(set)) {
  assert.match(item.record, /^at:\/\/did:plc:[^/]+\/app\.bsky\.graph\.follow\//);
  if (++records === 1500) break;
}
const {members: contained} = await skein.contains({set, member: [members[0], star]});
assert.deepEqual(contained, [{member: members[0], contained: true}, {member: star, contained: false}]);
const ranked = await skein.rank({of: set, via: 'likes', since: '24h', limit: 3});
assert.equal(ranked.items.length, 3);
assert.equal((await skein.getAccount({did: star})).state, 'complete');
assert.ok((await skein.getStats()).records.follow > 1000);
const known = await skein.known({actor: members[0], edge: 'followers', subject: [star]});
assert.equal(known.subjects[0].subject, star);
await assert.rejects(skein.query({set: 'folowers(x)'}), error => error instanceof SkeinError && error.name === 'InvalidRequest' && error.status === 400 && /did you mean followers/.test(error.message));
await assert.rejects(async () => { for await (const _ of skein.subscribe('nothing(x)')) break; }, SkeinError);
await assert.rejects(new Skein('http://127.0.0.1:1').count(set), error => error instanceof SkeinError && error.name === 'Unreachable');

// What is no answer of a skein is an error with a name; a subscription comes back where that
// may help, and ends where it does not.
let asked = 0;
const stranger = createServer((request, response) => {
  const set = new URL(request.url, 'http://x').searchParams.get('set');
  asked++;
  if (set === 'html') return response.end('<html>hello');
  if (set === 'cut') { response.writeHead(200, {'content-length': '100'}); response.write('{"total":'); return setTimeout(() => response.destroy(), 50); }
  if (set === 'text') return response.writeHead(502).end('"bad"');
  if (set === 'none') return response.writeHead(501).end('{"error":"MethodNotImplemented","message":"not here"}');
  if (asked % 3 === 1) return response.writeHead(429).end('{"error":"RateLimitExceeded"}');
  response.writeHead(200, {'content-type': 'text/event-stream'});
  response.write('data: {"cursor":"1","entered":["did:plc:x"]}\n\ndata: {"cur');
  setTimeout(() => response.destroy(), 50);
}).listen(0, '127.0.0.1');
await new Promise(done => stranger.once('listening', done));
const strange = new Skein('http://127.0.0.1:' + stranger.address().port);
for (const [set, name] of [['html', 'InvalidResponse'], ['cut', 'InvalidResponse'], ['text', 'HTTPError'], ['none', 'MethodNotImplemented']]) {
  await assert.rejects(strange.count(set), error => error instanceof SkeinError && error.name === name, set);
}
await assert.rejects(async () => { for await (const _ of strange.subscribe('none')) break; }, error => error.status === 501);
asked = 0;
let told = 0, retries = 0;
const enough = new AbortController();
const began = Date.now();
for await (const change of strange.subscribe('x', undefined, {signal: enough.signal, onRetry: () => { if (++retries === 4) setTimeout(() => enough.abort(), 10); }})) told += change.entered.length;
assert.ok(told === 2 && retries === 4 && Date.now() - began < 10_000, `${told} told, ${retries} retries, ${Date.now() - began} ms`);
stranger.close();

// A set that changes is told; who breaks off and comes back with the cursor misses nothing.
const ends = new AbortController();
setTimeout(() => ends.abort(), 60_000).unref();
let cursor, changes = 0;
for (let round = 0; round < 2; round++) {
  for await (const change of skein.subscribe(`except(${set}, members(${star}))`, cursor, {signal: ends.signal})) {
    assert.ok(!change.reset);
    cursor = change.cursor;
    changes += (change.entered ?? []).length;
    if ((change.entered ?? []).length > 0) break;
  }
}
assert.ok(changes >= 2, `${changes} changes`);
console.log(`TypeScript: ${members.length} members, ${records} records, ${changes} changes`);
