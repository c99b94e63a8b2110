// Tests the client against small local servers: npm test, in clients/typescript.
import assert from 'node:assert/strict';
import {mkdtemp, readFile, rm} from 'node:fs/promises';
import {createServer} from 'node:http';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import nodeTest from 'node:test';

let Skein, SkeinError, PagedMethods;

/** Tests both builds, one after the other. */
const builds = {import: await import('skein-blue'), require: createRequire(import.meta.url)('skein-blue')};
assert.notEqual(builds.import.Skein, builds.require.Skein);
const test = (name, run) => Object.entries(builds).map(([how, build]) => nodeTest(`${name} (${how})`, async t => {
  ({Skein, SkeinError, PagedMethods} = build);
  await run(t);
}));

const reason = 'records of did:plc:a from before the index first saw it are missing';
const missing = {incomplete: true, reason};

/** Starts a server that calls answer(request, response, parameters) until the test ends, and returns its address. */
async function serve(t, answer) {
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const [, query = ''] = request.url.split('?');
    answer(request, response, new URLSearchParams(request.method === 'POST' ? body : query));
  }).listen(0, '127.0.0.1');
  await new Promise(done => server.once('listening', done));
  t.after(() => { server.closeAllConnections(); server.close(); });
  return 'http://127.0.0.1:' + server.address().port;
}

const json = (response, status, body) => response.writeHead(status, {'content-type': 'application/json'}).end(JSON.stringify(body));
const is = (name, status) => error => {
  assert.ok(error instanceof SkeinError, String(error));
  assert.equal(error.name, name);
  if (status !== undefined) assert.equal(error.status, status);
  return true;
};
/** The client's waits are over at once; returns their lengths, in seconds. */
function hasten(t) {
  const waits = [], timeout = setTimeout;
  t.mock.method(globalThis, 'setTimeout', (call, wait) => {
    const isClients = /call\.js/.test(new Error().stack);
    if (isClients) waits.push(wait / 1000);
    return timeout(call, isClients ? 0 : wait);
  });
  return waits;
}
const first = async items => { for await (const item of items) return item; };

/** A server whose answers may be incomplete, from the second page on. */
const lacking = t => serve(t, (request, response, params) => {
  const method = request.url.split('?')[0].split('.').at(-1);
  const second = params.has('cursor');
  const page = {type: 'did', total: 3, ...(second ? missing : {cursor: '2'})};
  const names = second ? ['c'] : ['a', 'b'];
  if (params.has('count')) json(response, 200, {type: 'did', total: 3, ...missing});
  else if (method === 'query') json(response, 200, {...page, members: names});
  else if (method === 'list') json(response, 200, {...page, order: 'newest', items: names.map(member => ({member, record: 'r'}))});
  else if (method === 'getStats') json(response, 200, {incomplete: 5});
  else json(response, 200, {type: 'did', items: [], subjects: [], members: [], ...missing});
});

test('an answer that may be incomplete has the flag and the reason', async t => {
  const reported = [];
  const skein = new Skein(await lacking(t), {onIncomplete: (...what) => reported.push(what)});
  assert.deepEqual(await skein.count({set: 'x'}), {total: 3, ...missing});
  assert.deepEqual(reported.splice(0), [[reason, 'blue.skein.graph.query']]);
  for (const [pages, name] of [[skein.members({set: 'x'}), m => m], [skein.records({set: 'x'}), r => r.member]]) {
    assert.deepEqual([pages.total, pages.incomplete, pages.reason], [undefined, false, undefined]);
    const seen = [];
    for await (const item of pages) {
      seen.push(name(item));
      assert.deepEqual([pages.total, pages.incomplete], [3, seen.length === 3]);
    }
    assert.deepEqual([seen.join(''), pages.reason], ['abc', reason]);
    assert.equal(reported.splice(0).length, 1);
  }
  await skein.rank({of: 'x', via: 'likes'});
  await skein.known({actor: 'x', edge: 'followers', subject: ['y']});
  await skein.contains({set: 'x', member: ['y']});
  assert.equal(reported.length, 3);
  assert.equal((await skein.getStats()).incomplete, 5); // a number of accounts
  assert.equal(reported.length, 3);
});

test('by default the client warns once for each reason', async t => {
  const warned = t.mock.method(console, 'warn', () => {});
  let n = 0;
  const answer = async url => Response.json({total: 0, incomplete: true, reason: url.includes('set=new') ? 'reason ' + n++ : reason});
  const skein = new Skein('http://x', {fetch: answer});
  for (let i = 0; i < 3; i++) await skein.count({set: 'x'});
  assert.equal(warned.mock.callCount(), 1);
  assert.match(warned.mock.calls[0].arguments[0], new RegExp(reason));
  for (let i = 0; i < 1000; i++) await skein.count({set: 'new'}); // evicts the first reason
  await skein.count({set: 'x'});
  assert.equal(warned.mock.callCount(), 1002);
});

test('a query that is too long for a URL uses POST', async t => {
  const noted = [];
  const base = await serve(t, (request, response, params) => {
    noted.push([request.method, request.url.split('?')[0], request.headers['content-type'] ?? '', [...params]]);
    json(response, 200, {total: 0, type: 'did', items: [], subjects: [], members: [], relationships: []});
  });
  const skein = new Skein(base, {headers: {authorization: 'Bearer x'}});
  const many = Array.from({length: 1000}, (_, i) => 'did:plc:' + String(i).padStart(24, '0'));
  const long = `members(${many.join(',')})`;
  for (const [method, params] of [
    ['query', {set: long, count: true}], ['list', {set: long}], ['rank', {of: long, via: 'likes'}],
    ['contains', {set: 'x', member: many}], ['known', {actor: 'x', edge: 'followers', subject: many}],
  ]) {
    await skein[method](params);
    const sent = Object.entries(params).flatMap(([name, value]) => [value].flat().map(one => [name, String(one)]));
    assert.deepEqual(noted.splice(0), [['POST', '/xrpc/blue.skein.graph.' + method, 'application/x-www-form-urlencoded', sent]]);
  }
  await skein.count({set: long});
  await first(skein.members({set: long}));
  await skein.getRelationships({actor: 'x', others: many.slice(0, 200)}); // accepts no form
  await skein.query({set: 'x'.repeat(7168 - 'set='.length)});
  await skein.query({set: 'x'.repeat(7169 - 'set='.length)});
  assert.deepEqual(noted.map(n => n[0]), ['POST', 'POST', 'GET', 'GET', 'POST']);
});

test('numbers and times are sent as the server spells them', async t => {
  const noted = [];
  const base = await serve(t, (_, response, params) => { noted.push([...params]); json(response, 200, {items: []}); });
  await new Skein(base).rank({of: 'x', via: 'likes', damp: 0.5, since: new Date(Date.UTC(2026, 10, 22, 6)), until: '1h', exact: true});
  assert.deepEqual(noted, [[['of', 'x'], ['via', 'likes'], ['damp', '0.5'], ['since', '2026-11-22T06:00:00.000Z'], ['until', '1h'], ['exact', 'true']]]);
});

test('a server that is too old for POST gives a clear error', async t => {
  const base = await serve(t, (_, response) => json(response, 405, {error: 'InvalidRequest', message: 'use GET'}));
  await assert.rejects(new Skein(base).query({set: 'x'.repeat(9000)}), error => is('PostNotSupported', 405)(error) && /upgrade the server/.test(error.message));
});

// An answer that does not come from a skein is an error with a name. A subscription reconnects if
// that may help, and ends if it cannot.
const strange = async t => {
  let asked = 0;
  const base = await serve(t, (_, response, params) => {
    asked++;
    const stream = text => { response.writeHead(200, {'content-type': 'text/event-stream'}).write(text); setTimeout(() => response.destroy(), 50); };
    switch (params.get('set')) {
      case 'html': return response.end('<html>hello');
      case 'list': return response.end('[]');
      case 'text': return response.writeHead(502).end('"bad"');
      case 'none': return json(response, 501, {error: 'MethodNotImplemented', message: 'not here'});
      case 'slow': return stream(': begin\n\nevent: error\ndata: {"error":"ConsumerTooSlow","message":"too slow"}\n\n');
      case 'silent': return;
      case 'no change': return stream('data: {"entered":[]}\n\n');
    }
    if (asked % 3 === 1) return response.writeHead(429, {'retry-after': '7'}).end('{"error":"RateLimitExceeded"}');
    stream('data: {"cursor":"1","entered":["did:plc:x"]}\n\ndata: {"cur');
  });
  return new Skein(base);
};

test('errors have names', async t => {
  const skein = await strange(t);
  for (const [set, name] of [['html', 'InvalidResponse'], ['list', 'InvalidResponse'], ['text', 'HTTPError'], ['none', 'MethodNotImplemented']]) {
    await assert.rejects(skein.count({set}), is(name), set);
  }
  await assert.rejects(new Skein('http://127.0.0.1:1', {retries: 0}).count({set: 'x'}), is('Unreachable', 0));
  assert.throws(() => new Skein('127.0.0.1:3210'), /does not start with http:\/\//);
  await assert.rejects(skein.query('followers(x)'), /parameters in one object/);
});

test('a call is repeated if that may help, over connections that stay open', async t => {
  const waits = hasten(t);
  let script = [], asked = 0;
  const base = await serve(t, (request, response) => {
    asked++;
    const [step, after] = [script.shift() ?? 200].flat();
    if (step === 'drop') request.socket.destroy();
    else if (step === 'cut') response.writeHead(200, {'content-length': '100'}).write('{"total":', () => request.socket.destroy());
    else if (step === 'html') response.end('<html>');
    else if (step === 'used') json(response, 401, {error: 'JwtReplayed'});
    else response.writeHead(step, after && {'retry-after': after}).end('{"total":1}');
  });
  const begin = (...steps) => { script = steps; asked = 0; waits.splice(0); };
  const skein = new Skein(base);
  for (const [steps, least] of [
    [[[429, '7'], [503, new Date(Date.now() + 50e3).toUTCString()], 'drop'], [7, 50, 2]],
    [['cut', 'drop', [503, '0']], [0.5, 1, 2]],
    [[503, [429, 'soon'], [503, '60']], [0.5, 1, 60]],
  ]) for (const set of ['x', 'x'.repeat(9000)]) { // by POST, which only reads, too
    begin(...steps);
    assert.equal((await skein.count({set})).total, 1);
    assert.equal(asked, 4);
    waits.forEach((wait, i) => assert.ok(wait >= least[i] - (least[i] === 50 ? 30 : 0) && wait <= 1.5 * least[i], `${waits}`));
  }
  const four = step => Array(9).fill(step);
  for (const [steps, times, name, retryAfter] of [
    [four([503, '1']), 4, 'HTTPError', 1], [four('drop'), 4, 'Unreachable'], [four('cut'), 4, 'InvalidResponse'],
    [[[429, '61']], 1, 'HTTPError', 61], [[[400, '1']], 1, 'HTTPError', 1], [[504], 1, 'HTTPError'], [['html'], 1, 'InvalidResponse'],
    [['used'], 1, 'JwtReplayed'], [[[503, '1'], 'used'], 2, 'HTTPError', 1], // a token for one request
  ]) {
    begin(...steps);
    await assert.rejects(skein.count({set: 'x'}), error => is(name)(error) && error.retryAfter === retryAfter);
    assert.equal(asked, times, name);
  }
  const stalls = t.mock.fn(async () => ({ok: true, text: async () => { throw new TypeError('terminated', {cause: {code: 'UND_ERR_BODY_TIMEOUT'}}); }}));
  await assert.rejects(new Skein(base, {fetch: stalls}).count({set: 'x'}), is('InvalidResponse'));
  assert.equal(stalls.mock.callCount(), 1);
  begin('drop');
  await assert.rejects(new Skein(base, {retries: 0}).count({set: 'x'}), is('Unreachable', 0));
  const sockets = new Set();
  const lasting = new Skein(await serve(t, (request, response) => {
    sockets.add(request.socket);
    json(response, ++asked === 1 ? 200 : 503, {total: 1});
  }));
  begin();
  for (let i = 0; i < 3; i++) await lasting.count({set: 'x'}).catch(() => {});
  assert.equal(asked, 9);
  assert.ok(sockets.size <= 2, `${sockets.size}`); // Node may open a second one while it ends an answer
  begin([503, '9']);
  const ends = new AbortController();
  waits.push = () => ends.abort();
  await assert.rejects(skein.count({set: 'x'}, {signal: ends.signal}), {name: 'AbortError'});
  assert.equal(asked, 1);
});

test('a token leaves authorization to an account', async t => {
  const noted = [];
  const base = await serve(t, ({headers}, response) => { noted.push([headers.authorization, headers['skein-token']]); json(response, 200, {total: 0}); });
  await new Skein(base, {token: 'skein_x'}).count({set: 'x'});
  await new Skein(base, {token: 'skein_x', headers: {Authorization: 'Bearer jwt'}}).count({set: 'x'});
  assert.deepEqual(noted, [['Bearer skein_x', undefined], ['Bearer jwt', 'skein_x']]);
});

test('methods with a cursor iterate over their pages', async t => {
  const fields = {query: 'members', getBlocks: 'blocks', getBacklinks: 'records', getBacklinkDids: 'linking_dids', getFeedSkeleton: 'feed', queryLabels: 'labels', list: 'items', rank: 'items'};
  const most = {getBlocks: 100, getFeedSkeleton: 100, queryLabels: 250};
  const asked = [];
  const skein = new Skein(await serve(t, (request, response, params) => {
    const limit = Number(params.get('limit')), begin = Number(params.get('cursor') ?? 0), end = Math.min(begin + Math.min(limit, 40), 100);
    asked.push(limit);
    const items = Array.from({length: end - begin}, (_, i) => begin + i);
    json(response, 200, {[fields[request.url.split('?')[0].split('.').at(-1)]]: items, handles: {['e' + end]: params.get('names')}, total: 100, cursor: end < 100 ? String(end) : null});
  }));
  const numbers = (from, to) => Array.from({length: to - from}, (_, i) => from + i);
  for (const method of Object.keys(fields)) {
    asked.splice(0);
    const pages = skein.pages[method]({set: 'x'});
    assert.deepEqual(await pages.first(45), numbers(0, 45));
    assert.deepEqual(asked, [45, 5]);
    assert.deepEqual([(await pages.next()).value, pages.page.handles, pages.total], [45, {e85: null}, 100]);
    const rest = await Promise.all(numbers(46, 103).map(() => pages.next())); // at once
    assert.deepEqual(rest.map(r => r.value), [...numbers(46, 100), undefined, undefined, undefined]);
    assert.deepEqual(asked.slice(2), [most[method] ?? 1000, most[method] ?? 1000]);
    assert.deepEqual(await pages.first(3), []);
  }
  assert.deepEqual(await skein.members({set: 'x'}).first(3), [0, 1, 2]);
  const named = skein.members({set: 'x', names: true});
  await named.first(45);
  assert.deepEqual(named.handles, {e40: 'true', e45: 'true'});
  assert.deepEqual(Object.getOwnPropertyNames(PagedMethods.prototype).sort(), ['constructor', ...Object.keys(fields)].sort());
});

test('a watch keeps its place in a file', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'watch-')), state = join(folder, 'state');
  t.after(() => rm(folder, {recursive: true}));
  hasten(t);
  const from = [], fails = [500, 200, 'drop'], retried = []; // of the comparisons
  let members = ['a'];
  const base = await serve(t, (request, response, params) => {
    if (!request.url.includes('subscribe')) {
      const status = fails.shift() ?? 200;
      return status === 'drop' ? request.socket.destroy() : json(response, status, {type: 'did', total: members.length, members});
    }
    const cursor = params.get('cursor');
    from.push(cursor);
    response.writeHead(200, {'content-type': 'text/event-stream'}).write(cursor ? 'data: {"cursor":"3","reset":"gap"}\n\n' : 'data: {"cursor":"1"}\n\ndata: {"cursor":"2","entered":["b"],"left":["a"]}\n\n');
  });
  const skein = new Skein(base, {retries: 0}), onRetry = error => retried.push(error.status), told = [];
  for await (const change of skein.watch({set: 'x', state}, {onRetry})) if (told.push(change) === 2) break;
  assert.deepEqual(told, [{type: 'left', member: 'a'}, {type: 'entered', member: 'b'}]);
  assert.deepEqual(JSON.parse(await readFile(state, 'utf8')), {set: 'x', cursor: '2', members: ['b'], pending: [{type: 'entered', member: 'b'}]});
  assert.deepEqual([from.splice(0), retried.splice(0)], [[null, null, null], [500, 0]]);
  fails.push(200, 503);
  members = ['c'];
  for await (const {member} of skein.watch({set: 'x', state}, {onRetry})) if (member === 'c') break;
  assert.deepEqual([from.splice(0), retried.splice(0)], [['2', '2'], [503]]);
  for (members of [new Array(50_001), Array.from({length: 50_000}, (_, i) => i)]) {
    await assert.rejects(first(skein.watch({set: 'x', state: join(folder, 'other')}, {onRetry})), RangeError);
  }
});

test('a subscription reconnects, and ends if that cannot help', async t => {
  const skein = await strange(t);
  await assert.rejects(first(skein.subscribe({set: 'none'})), is('MethodNotImplemented', 501));
  const retries = [];
  const enough = new AbortController();
  let entered = 0;
  const onRetry = (error, wait) => { if (retries.push([error.name, wait]) === 3) setTimeout(() => enough.abort(), 10); };
  for await (const change of skein.subscribe({set: 'x'}, {signal: enough.signal, onRetry})) entered += change.entered.length;
  assert.deepEqual([entered, retries.map(r => r[0])], [2, ['Unreachable', 'Unreachable', 'RateLimitExceeded']]);
  assert.ok(retries[0][1] < 1000 && retries[2][1] >= 7000, `${retries}`);
});

test('onRetry receives the error that ended a connection', async t => {
  const skein = await strange(t), timeout = setTimeout, onRetry = error => { throw error; };
  for (const [set, name] of [['slow', 'ConsumerTooSlow'], ['html', 'InvalidResponse'], ['no change', 'InvalidResponse']]) {
    await assert.rejects(first(skein.subscribe({set}, {onRetry})), is(name), set);
  }
  t.mock.method(globalThis, 'setTimeout', (call, wait, ...more) => timeout(call, wait === 45_000 ? 450 : wait, ...more));
  await assert.rejects(first(skein.subscribe({set: 'silent'}, {onRetry})), /no data for 45 s/);
});

test('the signals of the client and of a call end calls', async t => {
  const base = await serve(t, () => {}); // never answers
  for (const of of ['client', 'call']) {
    const ends = new AbortController();
    const call = new Skein(base, of === 'client' ? {signal: ends.signal} : {}).count({set: 'x'}, of === 'call' ? {signal: ends.signal} : {});
    setTimeout(() => ends.abort(), 20);
    await assert.rejects(call, {name: 'AbortError'});
  }
});
