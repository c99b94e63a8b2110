// Questions that people ask, asked through skein mcp with the official client, over both transports, by the calls that the
// tools' descriptions suggest; the answers are compared with the records in the truth file of a recording.
//
//   node mcp.mjs lists TRUTH <EXPORT               adds lists to an export of the recording, which has none
//   node mcp.mjs ask TRUTH SKEIN SERVER URL LATE   asks SERVER, which has the export, and LATE, which lacks history
import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {readFileSync} from 'node:fs';

const [mode, file, command, server, url, late] = process.argv.slice(2);
const {accounts, records} = JSON.parse(readFileSync(file, 'utf8'));
const isActive = did => accounts[did]?.status === 'active';
const active = Object.keys(accounts).filter(isActive);
const valid = collection => Object.values(records).filter(r => r.valid && r.collection === 'app.bsky.' + collection);
const collect = (pairs, from, to) => {
  const sets = new Map();
  for (const r of pairs) (sets.get(r[from]) ?? sets.set(r[from], new Set()).get(r[from])).add(r[to]);
  return of => [...sets.get(of) ?? []];
};
const only = f => of => f(of).filter(isActive);
const follows = only(collect(valid('graph.follow'), 'did', 'subject')), followers = only(collect(valid('graph.follow'), 'subject', 'did'));
const likes = collect(valid('feed.like'), 'did', 'subject'), likers = only(collect(valid('feed.like'), 'subject', 'did'));
const most = (all, size) => all.reduce((x, y) => size(y) > size(x) ? y : x);
const A = most(active, did => followers(did).length), B = most(active.filter(did => did !== A && !follows(A).includes(did)), did => followers(did).length);
const ME = most(active.filter(did => did !== A && did !== B), did => follows(did).length);
const posts = [...new Set(valid('feed.like').map(r => r.subject))].sort((x, y) => likers(y).length - likers(x).length).slice(0, 10);
const POST = posts[0];

// A list of A and B that an active and an inactive account block, one of A that two block, and one of B.
const inactive = Object.keys(accounts).find(did => accounts[did].status === 'deactivated'), [owner, ...others] = active.filter(did => did !== A && did !== B);
const lists = [{on: [A, B], blockers: [others[0], inactive]}, {on: [A], blockers: [others[0], others[1]]}, {on: [B], blockers: [others[2]]}];
const rkey = n => '3n2rprzzzz' + '234567'[n] + '2e';

if (mode === 'lists') {
  const of = did => {
    const of = [['listitem', []], ['listitem_list', []], ['listblock', []]], rows = Object.fromEntries(of);
    lists.forEach(({on, blockers}, i) => {
      const list = `at://${owner}/app.bsky.graph.list/${rkey(i)}`;
      if (did === owner) on.forEach(subject => { const key = rkey(rows.listitem.length); rows.listitem.push([key, subject]); rows.listitem_list.push([key, list]); });
      if (blockers.includes(did)) rows.listblock.push([rkey(i), list]);
    });
    return of.filter(([, rows]) => rows.length).map(([kind, records]) => ({did, kind, records}));
  };
  const lines = readFileSync(0, 'utf8').trim().split('\n').map(l => JSON.parse(l)), {end} = lines.pop();
  const out = [];
  lines.forEach((l, i) => {
    out.push(l);
    const did = l.account?.did ?? l.did;
    if (did && (lines[i + 1]?.did !== did)) for (const row of of(did)) { out.push(row); end.records += row.records.length; }
  });
  const text = out.map(l => JSON.stringify(l) + '\n').join('');
  end.sha256 = createHash('sha256').update(text).digest('hex');
  process.stdout.write(text + JSON.stringify({end}) + '\n');
  process.exit(0);
}

const {Client} = await import('@modelcontextprotocol/sdk/client/index.js');
const {StdioClientTransport} = await import('@modelcontextprotocol/sdk/client/stdio.js');
const {StreamableHTTPClientTransport} = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');

// A call as a description suggests it: QUESTION? parameters. It returns the tool and the arguments.
const names = {A, B, ME, POST, '7d': '2026-11-20T23:15:40Z', 'each post': posts};
const called = new Set();
function suggested(tools, question) {
  const tool = tools.find(t => t.description.includes(question));
  assert.ok(tool, `no tool answers: ${question}`);
  const call = tool.description.split(question + ' ')[1].split(/\.(?: |$)/)[0], args = {};
  for (const [, name, value] of call.matchAll(/(\w+)=((?:[^,()]|\((?:[^()]|\([^()]*\))*\))+)/g)) {
    assert.ok(tool.inputSchema.properties[name], `${tool.name} has no ${name}`);
    args[name] = Array.isArray(names[value]) ? names[value] : value.replace(/\b(A|B|ME|POST|7d)\b/g, name => names[name]);
    if (tool.inputSchema.properties[name].type === 'array') args[name] = [args[name]].flat();
  }
  called.add(question);
  return {name: tool.name, arguments: args};
}

const tally = all => all.reduce((n, x) => n.set(x, (n.get(x) ?? 0) + 1), new Map());
const micros = key => [...key].reduce((n, c) => n * 32n + BigInt('234567abcdefghijklmnopqrstuvwxyz'.indexOf(c)), 0n) >> 10n;
const sorted = all => [...all].sort();
// The page of a ranking has the results with the highest counts.
function ranks(items, counts) {
  assert.equal(items.length, Math.min(100, counts.size));
  const page = items.map(i => i.count);
  assert.deepEqual(page, [...counts.values()].sort((x, y) => y - x).slice(0, 100));
  for (const {member, count} of items) assert.equal(count, counts.get(member), member);
}

const questions = {
  'Who follows both A and B?': ({members}) => assert.deepEqual(sorted(members), sorted(followers(A).filter(did => followers(B).includes(did)))),
  'Which of those I follow like a post?': ({members}) => assert.deepEqual(sorted(members), sorted(follows(ME).filter(did => likers(POST).includes(did)))),
  'What do those I follow like this week that I have not liked?': ({items}) => {
    const week = BigInt(Date.parse(names['7d'])) * 1000n;
    const late = valid('feed.like').filter(r => micros(r.rkey) >= week && follows(ME).includes(r.did) && !likes(ME).includes(r.subject));
    assert.ok(late.length > 20 && late.length < follows(ME).flatMap(likes).length);
    ranks(items, tally([...new Set(late.map(r => r.did + ' ' + r.subject))].map(pair => pair.split(' ')[1])));
  },
  'Who is like A?': ({items}) => {
    const common = tally(followers(A).flatMap(follows));
    common.delete(A);
    assert.deepEqual(sorted(items.map(i => i.member + i.count)), sorted([...common].filter(([, n]) => n >= 5).map(([did, n]) => did + n)));
    const shares = items.map(i => i.count / followers(i.member).length);
    assert.deepEqual(shares, shares.toSorted((x, y) => y - x));
  },
  'Who blocks A through a list?': ({members}) => assert.deepEqual(sorted(members), sorted(others.slice(0, 2))),
  'How many followers did A gain a day?': ({buckets}) => {
    const days = tally(valid('graph.follow').filter(r => r.subject === A && isActive(r.did)).map(r => new Date(Number(micros(r.rkey) / 1000n)).toISOString().slice(0, 10)));
    assert.deepEqual(buckets.map(b => [b.start.slice(0, 10), b.count]), [...days]);
  },
  'How close are A and B?': ({path}) => {
    assert.ok(path.length > 2);
    const reached = new Map([[A, 0]]);
    for (const did of reached.keys()) for (const next of follows(did)) if (!reached.has(next)) reached.set(next, reached.get(did) + 1);
    assert.equal(path.length - 1, reached.get(B));
    assert.ok(path[0] === A && path.at(-1) === B && path.slice(1).every((did, i) => follows(path[i]).includes(did)));
  },
  'Whose posts do I like most?': ({items}) => ranks(items, tally(likes(ME).map(uri => uri.split('/')[2]).filter(isActive))),
  'Which of these posts have the most likers among those I follow?': ({subjects}) =>
    assert.deepEqual(subjects.map(s => [s.subject, s.total]), posts.map(uri => [uri, likers(uri).filter(did => follows(ME).includes(did)).length])),
};

async function connect(transport) {
  const client = new Client({name: 'test', version: '1'});
  await client.connect(transport);
  return {
    client,
    tools: (await client.listTools()).tools,
    async call(call) {
      const {isError, content, structuredContent} = await client.callTool(call);
      assert.deepEqual(structuredContent, isError ? undefined : JSON.parse(content[0].text));
      return isError ? {error: content[0].text} : structuredContent;
    },
  };
}

const over = address => new StdioClientTransport({command, args: ['mcp', '--server', address]});
const listed = [];
for (const transport of [over(server), new StreamableHTTPClientTransport(new URL(url))]) {
  const {client, tools, call} = await connect(transport);
  assert.match(client.getInstructions(), /incomplete=true/);
  for (const [question, check] of Object.entries(questions)) {
    const answer = await call(suggested(tools, question));
    assert.equal(answer.error ?? answer.reason, undefined, question); // and complete
    check(answer);
  }
  assert.match((await call({name: 'query', arguments: {set: 'folowers(x)'}})).error, /did you mean followers.*skein:\/\/language/);
  const {resources} = await client.listResources();
  assert.match((await client.readResource({uri: resources[0].uri})).contents[0].text, /## Sets/);
  listed.push(tools);
  await client.close();
}
assert.deepEqual(listed[0], listed[1]);
assert.equal(called.size, 9);

// Is the answer complete, and if not, why?
const {client, tools, call} = await connect(over(late));
const answer = await call(suggested(tools, 'Who follows both A and B?'));
assert.ok(answer.incomplete && answer.total < followers(A).filter(did => followers(B).includes(did)).length);
assert.equal((await call({name: 'getStats', arguments: {}})).reason, answer.reason);
assert.notEqual((await call({name: 'getAccount', arguments: {did: A}})).state, 'complete');
await client.close();

const stranger = await connect(new StreamableHTTPClientTransport(new URL(url), {requestInit: {headers: {authorization: 'Bearer skein_unknown'}}}));
assert.match((await stranger.call({name: 'getStats', arguments: {}})).error, /does not know the token/);
await stranger.client.close();
console.log(`skein mcp: ${listed[0].length} tools, ${called.size + 1} questions, over both transports; incomplete: ${answer.reason}`);
