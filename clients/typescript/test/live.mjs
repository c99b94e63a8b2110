// node live.mjs SERVER ACCOUNT LIST FEEDS: tests the client against running servers. ACCOUNT must
// have many followers, LIST members, and the server FEEDS a feed without a viewer.
import assert from 'node:assert/strict';
import {mkdtemp, readFile, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {Methods, PagedMethods, Skein, SkeinError} from 'skein-blue';

const [base, star, list, feeds] = process.argv.slice(2);
const reasons = [], called = new Set();
const noted = (methods, prefix) => new Proxy(methods, {
  get(skein, name) {
    called.add(prefix + name);
    if (name === 'pages') return noted(skein.pages, 'pages.');
    return typeof skein[name] === 'function' ? skein[name].bind(skein) : skein[name];
  },
});
const noting = server => noted(new Skein(server, {onIncomplete: reason => reasons.push(reason)}), '');
const skein = noting(base);
const set = `followers(${star})`;

const members = [];
for await (const did of skein.members({set})) members.push(did);
assert.ok(members.length > 100, `${members.length} members`);
assert.equal(new Set(members).size, members.length);
const left = 5; // people of the demo also unfollow, at most this many during the test
assert.ok((await skein.count({set})).total >= members.length - left);
let records = 0;
for await (const item of skein.records({set})) {
  assert.match(item.record, /^at:\/\/did:plc:[^/]+\/app\.bsky\.graph\.follow\//);
  if (++records === 1500) break;
}
const {members: contained} = await skein.contains({set, member: [members[0], star]});
assert.deepEqual(contained, [{member: members[0], contained: true}, {member: star, contained: false}]);
assert.equal((await skein.query({set, count: true})).members, undefined);
assert.equal((await skein.list({set, limit: 3})).items.length, 3);
const largest = await skein.list({set: `sample(${set}, 40)`, order: 'size(followers)', limit: 10});
assert.ok(largest.order === 'size(followers)' && largest.total === 40 && largest.items.every((m, i) => m.record && (i === 0 || m.size <= largest.items[i - 1].size)), JSON.stringify(largest));
assert.equal((await skein.rank({of: set, via: 'likes', since: new Date(Date.now() - 864e5), damp: 0.5, limit: 3})).items.length, 3);
const ranked = skein.pages.rank({of: set, via: 'likes'});
assert.ok(new Set((await ranked.first(1200)).map(r => r.member)).size > 1000 && ranked.page.type === 'uri');
assert.deepEqual(await skein.pages.query({set}).first(3), members.slice(0, 3));
const oldest = (await skein.pages.list({set, order: 'oldest'}).first(1200)).map(r => r.time);
assert.deepEqual(oldest, [...oldest].sort());
assert.ok(oldest.length > 100, `${oldest.length}`);
assert.equal((await skein.getAccount({did: star})).state, 'complete');
assert.ok((await skein.getStats()).records.follow > 1000);
const {subjects: [sizes]} = await skein.counts({edge: ['followers', 'likes'], subject: [star]});
assert.ok(sizes.subject === star && sizes.totals.length === 2 && sizes.totals[0] >= members.length - left, JSON.stringify(sizes));
const times = await skein.histogram({set, bucket: '1d'});
const counted = times.buckets.reduce((n, b) => n + b.count, (times.earlier ?? 0) + (times.later ?? 0) + (times.undated ?? 0));
assert.ok(times.bucketSeconds === 86400 && counted === times.total && times.total >= members.length - left, JSON.stringify(times));
const {blocks, total: blockers} = await skein.getBlocks({actor: star, direction: 'blockedBy', limit: 100});
assert.ok(Array.isArray(blocks) && blockers >= Math.min(blocks.length, 100) && blocks.every(b => b.record || b.lists.length), JSON.stringify(blocks));
assert.ok((await skein.pages.getBlocks({actor: star, direction: 'blockedBy'}).first(1e6)).length >= blockers - left);
const known = await skein.known({actor: members[0], edge: 'followers', subject: [star]});
assert.equal(known.subjects[0].subject, star);
const shared = await skein.overlap({set: [`members(${star}, ${members[0]})`, `members(${star})`], with: `members(${members[0]})`});
assert.deepEqual([shared.totals, shared.pairs], [[2, 1, 1], [[2, 1, 1], [1, 1, 0], [1, 0, 1]]]);
assert.deepEqual((await skein.path({from: members[0], to: star, max: 1})).path, [members[0], star]);
await assert.rejects(skein.labels({subject: [star]}), {name: 'InvalidRequest', message: /reads no labelers/});
for (const labels of [skein.queryLabels({uriPatterns: ['*']}), skein.pages.queryLabels({uriPatterns: ['*']}).next()]) await assert.rejects(labels, {name: 'InvalidRequest', message: /reads no labelers/});

// All accounts are known here, so an unknown one has no sets, and nothing is incomplete.
const nobody = 'follows(did:plc:neverseenaaaaaaaaaaaaaaa)';
const count = await skein.count({set: nobody}), pages = skein.members({set: nobody});
for await (const did of pages) assert.fail(did);
assert.ok(count.total === 0 && !count.incomplete && !pages.incomplete);
assert.deepEqual(reasons, []);

// A query that is too long for a URL. The server's OpenAPI description lists POST methods.
const {paths} = await (await fetch(base + '/openapi.json')).json();
const takesPost = 'post' in paths['/xrpc/blue.skein.graph.query'];
const letters = [...'abcdefghijklmnopqrstuvwxyz234567'];
const strangers = letters.flatMap(x => letters.map(y => `did:plc:${x.repeat(12)}${y.repeat(12)}`)); // more than a page, with the members
const everybody = [...new Set([...members, ...strangers, star])], long = `members(${everybody})`;
assert.ok(long.length > 8 << 10);
if (takesPost) {
  assert.equal((await skein.count({set: long})).total, everybody.length);
  const found = [];
  for await (const did of skein.members({set: `except(${long}, members(${star}))`})) found.push(did);
  assert.deepEqual(found.sort(), everybody.filter(did => did !== star).sort());
  const common = (await skein.count({set: `intersect(${long}, ${set})`})).total;
  assert.ok(common >= members.length - left && common <= members.length, `${common} of ${members.length}`);
} else await assert.rejects(skein.count({set: long}), {name: 'PostNotSupported', status: 405});

// The methods of Bluesky and Constellation.
const {relationships: [related, unknown]} = await skein.getRelationships({actor: star, others: [members[0], 'nobody.test']});
assert.equal(related.$type, 'app.bsky.graph.defs#relationship');
assert.ok(related.followedBy.startsWith(`at://${members[0]}/`), related.followedBy);
assert.deepEqual([unknown.$type, unknown.notFound], ['app.bsky.graph.defs#notFoundActor', true]);
const follow = {subject: star, source: 'app.bsky.graph.follow:subject'};
const links = await skein.getBacklinks({...follow, limit: 10});
assert.ok(links.records.length === 10 && links.total >= members.length - left && links.cursor);
assert.equal((await skein.pages.getBacklinks(follow).first(120)).length, 120);
assert.equal((await skein.pages.getBacklinkDids(follow).first(120)).length, 120);
assert.equal((await skein.getBacklinks({...follow, did: [members[0]]})).total, 1);
assert.equal((await skein.getBacklinkDids({...follow, limit: 10})).linking_dids.length, 10);
assert.ok((await skein.getBacklinksCount(follow)).total >= members.length - left);
const withFeeds = noting(feeds);
const {feeds: [{uri: feed}]} = await withFeeds.describeFeedGenerator();
const page = await withFeeds.getFeedSkeleton({feed, limit: 1});
assert.ok(page.feed[0].post.startsWith('at://') && page.cursor);
const posts = await withFeeds.pages.getFeedSkeleton({feed}).first(1e6);
assert.ok(posts.length > 2 && posts[0].post === page.feed[0].post, `${posts.length}`);
await assert.rejects(skein.describeFeedGenerator(), {name: 'MethodNotImplemented', status: 501});

await assert.rejects(skein.query({set: 'folowers(x)'}), error => error instanceof SkeinError && error.name === 'InvalidRequest' && error.status === 400 && /did you mean followers/.test(error.message));
await assert.rejects(async () => { for await (const _ of skein.subscribe({set: 'nothing(x)'})) break; }, SkeinError);

// A changing set: a reconnection with the cursor misses nothing.
const ends = new AbortController();
setTimeout(() => ends.abort(), 60_000).unref();
let cursor, changes = 0;
for (let round = 0; round < 2; round++) {
  for await (const change of skein.subscribe({set: `except(${set}, members(${star}))`, ...(cursor && {cursor})}, {signal: ends.signal})) {
    assert.ok(!change.reset);
    cursor = change.cursor;
    changes += (change.entered ?? []).length;
    if ((change.entered ?? []).length > 0) break;
  }
}
assert.ok(changes >= 2, `${changes} changes`);

// A watch reports changes that were made while it did not run.
const folder = await mkdtemp(join(tmpdir(), 'watch-'));
const state = join(folder, 'state');
for await (const {member} of skein.watch({set, state}, {signal: ends.signal})) {
  assert.ok(member); // it begins, and ends with the first change
  break;
}
const place = JSON.parse(await readFile(state, 'utf8'));
assert.ok(place.pending.length >= 1);
await writeFile(state, JSON.stringify({...place, cursor: 'old-1', pending: [], members: ['did:web:gone.example.com', ...place.members.slice(1)]}));
const told = [];
for await (const change of skein.watch({set, state}, {signal: ends.signal})) if (told.push(change) === 2) break;
assert.deepEqual(told[0], {type: 'left', member: 'did:web:gone.example.com'});
assert.deepEqual(told[1].type, 'entered');
await assert.rejects(async () => { for await (const _ of skein.watch({set: 'other', state})) break; }, /another set/);
await rm(folder, {recursive: true});
const uncalled = [['', Methods], ['pages.', PagedMethods]].flatMap(([prefix, of]) => Object.getOwnPropertyNames(of.prototype).filter(name => name !== 'constructor' && !called.has(prefix + name)));
assert.deepEqual(uncalled, [], 'add a call of these methods to this test');
console.log(`TypeScript: ${members.length} members, ${records} records, ${changes} changes, ${called.size} methods, ${takesPost ? 'POST' : 'a server without POST'}`);
