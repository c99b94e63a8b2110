// node test.mjs SERVER ACCOUNT-THAT-MANY-FOLLOW: the client, against a running server.
import assert from 'node:assert/strict';
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

// A set that changes is told; who breaks off and comes back with the cursor misses nothing.
const ends = new AbortController();
setTimeout(() => ends.abort(), 60_000).unref();
let cursor, changes = 0;
for (let round = 0; round < 2; round++) {
  for await (const change of skein.subscribe(`except(${set}, members(${star}))`, cursor, ends.signal)) {
    assert.ok(!change.reset);
    cursor = change.cursor;
    changes += (change.entered ?? []).length;
    if ((change.entered ?? []).length > 0) break;
  }
}
assert.ok(changes >= 2, `${changes} changes`);
console.log(`TypeScript: ${members.length} members, ${records} records, ${changes} changes`);
