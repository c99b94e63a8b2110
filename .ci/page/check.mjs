// Opens the page of a running skein in headless Chromium and uses all of its controls, as a
// person would. Exits with 1 if an answer is wrong, if the console logs anything, if the page
// contacts another server, if it violates its policy, or if axe-core finds a serious problem.
// Writes screenshots (light, dark, narrow) to a folder.
//
//   node check.mjs URL TRUTH.json SCREENSHOTS CHROMIUM
import {readFileSync, mkdirSync} from 'node:fs';
import {createRequire} from 'node:module';
import {chromium} from 'playwright-core';
import {axeOf, feeds, graphs, pictures, states, typing, untilOf, waits} from './parts.mjs';

const [base, truthFile, shots, executablePath] = process.argv.slice(2);
const truth = JSON.parse(readFileSync(truthFile));
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(shots, {recursive: true});

let wrong = 0;
function expect(ok, what) {
  if (!ok) wrong++;
  console.log((ok ? 'ok    ' : 'WRONG ') + what);
}

// From the truth: an account that follows many, and a post that some of those like.
const hidden = did => truth.accounts[did] && truth.accounts[did].status !== 'active';
const records = Object.values(truth.records);
const followed = {}, likers = {};
for (const r of records) {
  if (hidden(r.did)) continue;
  if (r.collection === 'app.bsky.graph.follow' && !hidden(r.subject)) (followed[r.did] ||= new Set()).add(r.subject);
  if (r.collection === 'app.bsky.feed.like') (likers[r.subject] ||= new Set()).add(r.did);
}
const most = sets => Object.entries(sets).sort((a, b) => b[1].size - a[1].size)[0];
const [account, follows] = most(followed), [post, postLikers] = most(likers);
const both = [...postLikers].filter(d => follows.has(d)).sort();

const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
const context = await browser.newContext({viewport: {width: 1100, height: 900}, colorScheme: 'light', reducedMotion: 'reduce'});
await context.grantPermissions(['clipboard-read', 'clipboard-write'], {origin: base});
const page = await context.newPage();
const logged = [], outside = [];
let refusals = 0; // the console also logs error answers
page.on('console', m => { if (m.type() !== 'error' || !/status of (400|503|504)|net::ERR_FAILED|WebSocket.*response code: 400/.test(m.text())) logged.push(m.type() + ': ' + m.text()); else refusals++; });
page.on('pageerror', e => logged.push('error: ' + e));
page.on('request', r => { if (!r.url().startsWith(base)) outside.push(r.url()); });
await page.addInitScript(() => addEventListener('securitypolicyviolation', e => console.warn('policy: ' + e.violatedDirective + ' ' + e.blockedURI)));
// Replaces Bluesky's own service, which the page may use only after the viewer allows it.
await context.route('https://public.api.bsky.app/**', route => {
  const asked = new URL(route.request().url()).searchParams;
  const person = (did, i) => ({did, handle: `person${i}.example.com`, displayName: 'Person ' + i});
  const json = route.request().url().includes('search') ? {actors: [person(account, 0), person(both[0], 1)]} : route.request().url().includes('getPosts') ? {posts: asked.getAll('uris').map((uri, i) => ({uri, author: person(uri.split('/')[2], i), record: {text: 'Post ' + i + ' <b>says</b>'}}))} : {profiles: asked.getAll('actors').map(person)};
  route.fulfill({json, headers: {'access-control-allow-origin': '*'}});
});

// The page takes the simulated network for the public one, whose names it shows once the viewer allows it here.
await context.route('**/page/config.json', async route => {
  const response = await route.fetch();
  await route.fulfill({response, json: {...await response.json(), public: true}});
});
await page.addInitScript(() => { if (localStorage.getItem('names') === null) localStorage.setItem('names', 'no'); });

const until = untilOf(page), axe = axeOf(page, axeSource, expect);

const answered = () => page.waitForSelector('#out h2, #out .error');
const type = async text => {
  await page.fill('#q', text);
  await page.evaluate(() => document.querySelector('#out').replaceChildren()); // wait for the new answer
  await page.press('#q', 'Enter');
  await until(t => document.querySelector('#q').value === t && document.querySelector('#out').childElementCount > 0, text);
  await answered();
};
const facts = () => page.textContent('#out .facts');
const lines = text => text.split('\n').filter(Boolean), action = name => page.click(`#out .bar button:text-is("${name}")`);
const members = () => page.$$eval('#out .members .who a', list => list.map(a => a.textContent.startsWith('did:') && a.textContent.includes('/') ? 'at://' + a.textContent : a.textContent));

const the = {page, likers, base, shots, account, post, follows, records, hidden, type, outside, expect, until, axe, facts, action, lines};

// The state of the index has a page of its own, one click from every other.
await page.goto(base + '/');
expect(await page.isHidden('#now'), 'the first page is for the visitor');
await until(() => /live|answer/.test(document.querySelector('#state-text').textContent));
await page.click('#state a');
await until(() => /live|answer/.test(document.querySelector('#state-text').textContent));
await until(() => document.querySelector('#events-chart .line').getAttribute('d')?.includes('L'), null, 15000);
expect(await page.$eval('#tiles', e => e.childElementCount) === 7, 'seven tiles');
expect(/^[1-9]/.test(await page.textContent('#events-rate')), 'events per second: ' + await page.textContent('#events-rate'));
const first = await page.textContent('#tiles');
await until(t => document.querySelector('#tiles').textContent !== t, first, 5000);
expect(true, 'the tiles change');
await axe('the state of the index');
await page.goto(base + '/');
await page.waitForSelector('#out .asks');
await axe('the first page');
const proposed = await page.$$eval('#out .asks > a', list => list.map(a => [a.textContent, a.getAttribute('href')]));
for (const [titled, href] of proposed) {
  await page.goto(base + href);
  await page.waitForSelector('#out .members li');
  expect(!(await page.$('#out .error')), `${titled} ${await page.textContent('#out .facts')}`);
}
expect(proposed.length === 3, 'three queries about accounts that this index has');
await page.goto(base + '/');

// Completion, by keyboard and by mouse.
await page.click('#q');
await page.keyboard.type('foll');
await page.waitForSelector('#q-words:not([hidden])');
expect(await page.getAttribute('#q', 'aria-expanded') === 'true', 'a screen reader hears of the completion');
await page.keyboard.press('ArrowDown');
expect(await page.getAttribute('#q', 'aria-activedescendant') === 'q-words0', 'and of the chosen word');
await page.keyboard.press('ArrowUp');
await page.keyboard.press('ArrowDown');
await page.keyboard.press('Enter');
expect(await page.inputValue('#q') === 'followers()', 'completed by keyboard: ' + await page.inputValue('#q'));
await page.fill('#q', '');
await page.keyboard.type('inter');
await page.click('#q-words0');
expect(await page.inputValue('#q') === 'intersect()', 'completed by mouse: ' + await page.inputValue('#q'));
await page.keyboard.type('li');
await page.keyboard.press('Escape');
expect(await page.isHidden('#q-words'), 'Escape closes the completion');
await page.fill('#q', '');
for (const key of ['i', 'n', 't', 'e', 'Tab', 'f', 'o', 'l', 'l', 'o', 'w', 'e', 'Tab', 'x']) await page.keyboard.press(key);
expect(await page.inputValue('#q') === 'intersect(followers(x))', 'completion balances parentheses: ' + await page.inputValue('#q'));
await page.fill('#q', 'lfollows(x)');
await page.$eval('#q', e => { e.focus(); e.setSelectionRange(1, 1); e.dispatchEvent(new Event('input')); });
await page.click('#q-words li:has-text("likers")');
expect(await page.inputValue('#q') === 'likers(x)', 'completion replaces the whole word at the caret: ' + await page.inputValue('#q'));
await page.fill('#q', '');
await page.keyboard.press('ArrowDown');
expect((await page.$$('#q-words li')).length > 10, 'the arrow key lists all words');
await page.keyboard.press('Escape');
await page.fill('#q', '');
for (const key of [...'rank(of=Fol', 'ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
expect(await page.inputValue('#q') === 'rank(of=follows()', 'a set in a ranking: ' + await page.inputValue('#q'));
await page.fill('#q', '');
for (const key of [...'rank(via=l', 'Tab']) await page.keyboard.press(key);
expect(await page.inputValue('#q') === 'rank(via=likes', 'and a value: ' + await page.inputValue('#q'));
await page.fill('#q', 'followers(x)');
await page.click('#help summary');
await page.click('#what button:text-is("likes(…)")');
expect(await page.inputValue('#q') === 'likes()', 'a set from the help, by mouse: ' + await page.inputValue('#q'));

// The help lists both sets of every kind that the server indexes.
const {kinds} = await (await page.request.get(base + '/xrpc/blue.skein.graph.getStats')).json();
const sets = kinds.filter(k => k.forward).flatMap(k => [k.forward, k.reverse]), helped = await page.$$eval('#what button', list => list.map(b => b.textContent));
expect(sets.length > 8 && sets.every(s => helped.includes(s + '(…)')), 'the help lists all sets: ' + sets.join(' '));
await page.click('#help summary');

// A set, its pages, its address, and the way back.
await type(`follows(${account})`);
expect((await facts()).startsWith(`${follows.size} accounts`), `follows(${account}): ${await facts()}, want ${follows.size}`);
await type(`intersect(follows(${account}), likers(${post}))`);
expect(JSON.stringify((await members()).sort()) === JSON.stringify(both), `follows that like a post: ${both.length}`);
expect(/ ms/.test(await facts()), 'the time it took: ' + await facts());
expect((await page.textContent('#out pre')).includes('--data-urlencode'), 'the line for curl');
expect(await page.isHidden('#out pre'), 'it is hidden at first');
await action('curl command');
expect(await page.isVisible('#out pre') && await page.getAttribute('#out .bar [aria-expanded=true]', 'aria-controls') !== '', 'and shown by its button');
await page.click('#out .curl button');
expect((await page.evaluate(() => navigator.clipboard.readText())).startsWith('curl -G '), 'the button copies it');
await page.reload();
await answered();
expect(JSON.stringify((await members()).sort()) === JSON.stringify(both), 'the page’s address leads to the answer');
await page.goBack();
await until(a => document.querySelector('#out h2')?.textContent === a, `follows(${account})`);
expect(true, 'the way back');
const large = 'union(' + Object.keys(likers).filter(p => p.startsWith('at://did:')).slice(0, 60).map(p => `likers(${p})`).join(', ') + ')';
await type(large);
const total = parseInt(await facts());
let seen = new Set(await members());
while (await page.$('#out a:has-text("Next page")')) {
  await page.click('#out a:has-text("Next page")');
  await until(n => document.querySelector('#out .members') && document.querySelector('#out .members .who a').textContent !== n, [...seen].at(-50) || '');
  await page.waitForTimeout(100);
  (await members()).forEach(m => seen.add(m));
}
expect(seen.size === total, `all pages of a union: ${seen.size} of ${total}`);

// Which members of a set are in another set.
const typeSet = async set => {
  await type(set);
  await until(t => document.querySelector('#out h2')?.textContent === t, set);
};
await typeSet(`likers(${post})`);
expect(JSON.stringify(await page.$$eval('#out .bar button', list => list.filter(b => b.offsetParent).map(b => b.textContent))) === JSON.stringify(['Filter', 'Watch', 'Share', 'curl command', 'Copy all', 'CSV']), 'one bar of actions');
expect(await page.evaluate(() => document.querySelector('#out .bar').getBoundingClientRect().bottom <= document.querySelector('#out ol.members:not([hidden])').getBoundingClientRect().top), 'the bar is above the members');
expect(await page.isHidden('#whom'), 'the form is hidden at first');
await action('Filter');
expect(await page.evaluate(() => document.activeElement.id) === 'way', 'its button shows it and moves the focus there');
await action('curl command');
expect(await page.isHidden('#whom') && await page.isVisible('#out pre'), 'one panel at a time');
await action('Filter');
await page.selectOption('#way', 'are followed by the account');
await page.fill('#whom', post);
await page.click('.follow button');
expect(await page.$eval('#whom', e => e.validationMessage) === 'Enter an account’s DID or bsky.app link', 'the form says what it needs');
await page.selectOption('#way', 'like the post');
await page.selectOption('#way', 'are followed by the account');
expect(await page.$eval('#whom', e => e.validationMessage) === '', 'another choice clears the message');
await page.fill('#whom', account);
await page.click('.follow button');
await until(() => document.querySelector('#out h2').textContent.startsWith('intersect('));
expect(await page.evaluate(() => document.activeElement.tagName + scrollY) === 'H20', 'the new answer is shown from its start');
expect(JSON.stringify((await members()).sort()) === JSON.stringify(both), 'likers that an account follows');
await typeSet(`likers(${post})`);
await action('Filter');
await page.selectOption('#way', 'are not followed by the account');
await page.fill('#whom', account);
await page.click('.follow button');
await until(() => document.querySelector('#out h2').textContent.startsWith('except('));
expect(parseInt(await facts()) === postLikers.size - both.length, 'and those that it does not follow: ' + await facts());
for (const [set, whom] of [[`likers(${post})`, {account, post, list: `at://${account}/app.bsky.graph.list/x`}], [`likes(${both[0]})`, {account}]]) {
  await typeSet(set);
  for (const way of await page.$$eval('#way option', list => list.map(o => o.textContent))) {
    await typeSet(set);
    await action('Filter');
    await page.selectOption('#way', way);
    await page.fill('#whom', whom[way.split(' ').at(-1)]);
    await page.click('.follow button');
    await until(s => document.querySelector('#out h2')?.textContent !== s && document.querySelector('#out pre'), set);
    expect(!(await page.$('#out .error')), `which of these ${way}: ` + await facts());
  }
}
await axe('a set');
await action('Share');
await page.waitForSelector('#out .bar button:text-is("Link copied")');
expect(await page.evaluate(() => navigator.clipboard.readText()) === page.url(), 'the address of an answer is shared');

// Copy and CSV take all pages, not only the one that is shown.
await typeSet(large);
await action('Copy all');
await until(() => /^Copied/.test(document.querySelector('#out [role=status]').textContent));
const copied = lines(await page.evaluate(() => navigator.clipboard.readText()));
expect(copied.length === total && copied.every(m => seen.has(m)), `all members are copied: ${copied.length} of ${total}: ${await page.textContent('#out [role=status]')}`);
const csv = async () => {
  const [download] = await Promise.all([page.waitForEvent('download'), action('CSV')]);
  return [download.suggestedFilename(), readFileSync(await download.path(), 'utf8').split('\r\n').filter(Boolean)];
};
{
  const [name, [head, ...rows]] = await csv();
  expect(/^skein-union-likers.*\.csv$/.test(name) && head === 'member' && rows.length === total, `${name}: ${rows.length} rows`);
  await typeSet(`follows(${account})`);
  const [, [columns, ...records]] = await csv();
  expect(columns.startsWith('member,record,') && records.length === follows.size && records.every(r => follows.has(r.split(',')[0])), `with records: ${columns}, ${records.length} rows`);
  await page.route('**/xrpc/blue.skein.graph.list?**', route => {
    const second = {items: [{member: '=1+1'}], incomplete: true, reason: 'the index is young', sample: '1 of 2'};
    route.fulfill({json: {type: 'uri', total: 2, ...route.request().url().includes('cursor=') ? second : {items: [{member: 'good\ndid:plc:x'}], cursor: '2'}}});
  });
  const [, computed] = await csv();
  expect(JSON.stringify(computed) === JSON.stringify(['member', '"good\ndid:plc:x"', "'=1+1"]), 'a spreadsheet computes nothing: ' + computed);
  await action('Copy all');
  await until(() => /^Copied 2/.test(document.querySelector('#out [role=status]').textContent));
  expect(await page.evaluate(() => navigator.clipboard.readText()) === `"good\ndid:plc:x"\n'=1+1\n`, 'a line break begins no line, nor is anything computed');
  const note = await page.textContent('#out [role=status]');
  expect(note === 'Copied 2 lines. May be incomplete: the index is young. From a sample: 1 of 2.', 'a later page lacks something: ' + note);
  await page.unroute('**/xrpc/blue.skein.graph.list?**');
  await page.route('**/xrpc/blue.skein.graph.list?**', route => route.fulfill({status: 504, json: {error: 'QueryTimeout', message: 'the query took longer than 10s'}}));
  await action('Copy all');
  await until(() => /Failed: the query took longer/.test(document.querySelector('#out [role=status]').textContent));
  expect(true, 'a failure is shown');
  await page.unroute('**/xrpc/blue.skein.graph.list?**');
}

// An account, a post, and the queries about them.
const cards = async () => (await page.textContent('#out .cards')).replaceAll('at least ', '');
const card = async (name, n) => {
  for (let i = 0; i < 100 && !(await page.$('#out .cards') && (await cards()).includes(name + n)); i++) await page.waitForTimeout(50);
  return (await cards()).includes(name + n);
};
await type(account);
await until(() => [...document.querySelectorAll('#out .cards small')].every(e => e.textContent !== '…'));
expect((await cards()).includes('Follows' + follows.size), 'an account: ' + (await cards()));
await until(() => /\w \w/.test(document.querySelector('#out .facts').textContent));
expect(true, 'whether the account is complete: ' + await facts());
await axe('an account');
const {sets: pageSets} = await (await page.request.get(base + '/page/config.json')).json();
const shownTitles = await page.$$eval('#out .cards b', list => list.map(b => b.textContent.toLowerCase()));
const shownSets = pageSets.filter(s => s.of === 'account' && shownTitles.includes((s.title || s.name).toLowerCase())).map(s => s.name);
expect(kinds.filter(k => k.forward).every(k => shownSets.includes(k.forward) && (k.names !== 'did' || shownSets.includes(k.reverse))), 'a card for each set of an account: ' + shownSets.join(', '));
await page.screenshot({path: shots + '/account-light.png'});
// A card is a link exactly if there is something to open.
const open = await page.$$eval('#out .cards li', list => list.map(li => [li.querySelector('b').textContent, li.querySelector('small').textContent, Boolean(li.querySelector('a[href]'))]));
expect(open.every(([, n, link]) => link === !['0', 'unknown'].includes(n.replace('at least ', ''))), 'counts above 0 are links: ' + open.filter(o => !o[2]).map(o => o[0] + ' ' + o[1]));
expect(open.some(o => !o[2]) && open.some(o => o[2]), 'there are both');
expect(await page.$$eval('#tiles a, #kinds a', list => list.length) === 0, 'the figures of the index are not links');
for (const name of ['Blocks', 'Blockers', 'Mutual follows', 'Posts it liked this week', 'Posts liked by accounts it follows', 'Similar accounts', 'New followers this week', 'Followers']) {
  await type(account);
  await until(() => [...document.querySelectorAll('#out .cards small')].every(e => e.textContent !== '…'));
  const linked = `#out .cards a:has(b:text-is("${name}"))`;
  if (/ this week$/.test(name) && !(await page.$(linked))) continue; // the recording is older than a week
  await page.click(linked);
  await until(() => !document.querySelector('#out .cards') && document.querySelector('#out pre'));
  expect(!(await page.$('#out .error')), name + ': ' + await facts());
}
await type(post);
await until(() => [...document.querySelectorAll('#out .cards small')].every(e => e.textContent !== '…'));
expect((await cards()).includes('Liked by' + postLikers.size), 'a post: ' + (await cards()));
await page.fill('#whom', account);
await page.click('.follow button');
await page.waitForSelector('#out .members li');
expect(JSON.stringify((await members()).sort()) === JSON.stringify(both), 'which follows of an account liked it');
await type(`https://bsky.app/profile/${post.split('/')[2]}/post/${post.split('/')[4]}`);
expect(await card('Liked by', postLikers.size), 'the address of a post');
await type('https://bsky.app/profile/' + account);
expect(await card('Follows', follows.size), 'the address of an account');
await type(`at://${account}/app.bsky.graph.list/x`);
await page.waitForSelector('#out .cards');
expect(/Accounts on it.*Blocked by|Blocked by.*Accounts on it/.test(await page.textContent('#out')) && (await page.getAttribute('#out .facts a', 'href')).includes(encodeURIComponent(account)), 'a list and its author');

// A ranking: typed as in the file of feeds, with pages and a readable title.
const ranking = `rank(of=follows(${account}), via=likes)`;
await type(ranking);
expect((await page.textContent('#out h2')) === `Posts liked by the accounts that ${account} follows`, 'a ranking: ' + await facts());
const ranked = new Set(await members());
for (const by of ['', ', since=3650d', ', by=lift, min=1', ', top=3']) {
  await type(ranking.slice(0, -1) + by + ')');
  const counted = await page.textContent('#out .members .more a');
  await page.click('#out .members .more a');
  await until(() => document.querySelector('#out h2')?.textContent.startsWith('intersect('));
  expect(parseInt(await facts()) === parseInt(counted.replace('liked by ', '')), `${counted}, opened${by}: ${await facts()}`);
}
await type(ranking.slice(0, -1) + ', top=3)');
await action('Copy all');
await until(() => /^Copied/.test(document.querySelector('#out [role=status]').textContent));
expect(lines(await page.evaluate(() => navigator.clipboard.readText())).length === 3, 'Copy all keeps to the top of a ranking');
await type(ranking);
const some = await facts();
await type(ranking.slice(0, -1) + ', min=999999)');
await page.click('#out p a:text-is("Show those with min=1")');
await until(n => document.querySelector('#out .facts')?.textContent.startsWith(n), some.split(' · ')[0]);
expect(true, 'a ranking without results proposes min=1');
await page.click('#out .facts a');
await until(a => document.querySelector('#out h2')?.textContent === a, `follows(${account})`);
expect(true, 'the ranked set opens');
await type(ranking);
for (let n = 2; await page.$('#out a:has-text("Next page")'); n++) {
  await page.click('#out a:has-text("Next page")');
  await until(n => document.querySelector('#out .facts')?.textContent.startsWith('page ' + n), n);
  expect(await page.evaluate(() => document.activeElement.tagName) === 'H2', 'the focus is at the answer');
  (await members()).forEach(m => ranked.add(m));
}
const liked = new Set(records.filter(r => r.collection === 'app.bsky.feed.like' && follows.has(r.did) && !hidden(r.did)).map(r => r.subject));
expect(ranked.size === liked.size && [...ranked].every(m => liked.has(m)), `all pages of a ranking: ${ranked.size} of ${liked.size}`);
for (const [mistake, message] of [['sinse=1h', /does not take "sinse"/], ['via=likes', /via is given twice/]]) {
  await type(`rank(of=follows(${account}), via=likes, ${mistake})`);
  await page.waitForSelector('#out .error');
  expect(message.test(await page.textContent('#out .error')), mistake + ': ' + await page.textContent('#out .error'));
}
await type(`rank(of=follows(${account}), via=likes`);
await page.waitForSelector('#out .error');
expect(/expected "," or "\)"/.test(await page.textContent('#out .error')), 'a missing parenthesis: ' + await page.textContent('#out .error'));
await type(`rank(of=follows(${account}), via=likes, top=3)`);
await until(() => document.querySelectorAll('#out .members li').length === 3);
expect(true, 'the top of a ranking');
await page.fill('#q', '\u202a' + account + '\u202c');
await page.press('#q', 'Enter');
expect(await card('Follows', follows.size), 'invisible marks are removed');
await type('@alice');
await page.waitForSelector('#out .error');
expect(/is not a handle/.test(await page.textContent('#out .error')), 'half a handle: ' + await page.textContent('#out .error'));

// An error is marked at its position, with a correction to click.
const list = `at://${account}/app.bsky.graph.list/x`;
const mistakes = [
  [`rank(of=follows(${account}), via=folowers)`, /via is "folowers"/, `rank(of=follows(${account}), via=followers)`],
  [`rank(of=follows(${account}), via=likes, sinse=1h)`, /does not take "sinse"/, `rank(of=follows(${account}), via=likes, since=1h)`],
  [`rank(of=follows(${account}), via=likes, limit=3)`, /does not take "limit"/, `rank(of=follows(${account}), via=likes, top=3)`],
  [`rank(of=follows(${account}), via=likes`, /expected/, `rank(of=follows(${account}), via=likes)`],
  [`intersect(follows(${account}), folowers(${account}))`, /folowers/, `intersect(follows(${account}), followers(${account}))`],
  [`rank(of=folows(${account}), via=likes)`, /folows/, `rank(of=follows(${account}), via=likes)`],
  [`union(follows(${account}), followers(${account}`, /union|followers/, `union(follows(${account}), followers(${account}))`],
  [`following(${account}) and folowers(${account})`, /following/, `intersect(follows(${account}), followers(${account}))`],
  [`follows(${account}) and followers(${account})`, /unexpected/, `intersect(follows(${account}), followers(${account}))`],
  [`follows(${account}) or likers(${post})`, /unexpected/, `union(follows(${account}), likers(${post}))`],
  [`follows(${account}) but not likers(${post})`, /unexpected/, `except(follows(${account}), likers(${post}))`],
  [`followers ${account}`, /expected "\("/, `followers(${account})`],
  [`followers of https://bsky.app/profile/${account}`, /expected "\("/, `followers(${account})`],
  [`who follows ${account} and likes ${post}?`, /who/, `intersect(followers(${account}), likers(${post}))`],
  [`accounts that ${account} follows`, /accounts/, `follows(${account})`],
  [`posts liked by the followers of ${account}`, /posts/, `rank(of=followers(${account}), via=likes)`],
  [`likers(${account})`, /is an account/, `likes(${account})`],
  [`likes(${post})`, /is an AT URI/, `likers(${post})`],
  [`followers(${post})`, /is an AT URI/, `followers(${post.split('/')[2]})`],
  [`lists(${list})`, /is an AT URI/, `listed(${list})`],
  [`likes(follows(${account}))`, /neither/, `rank(of=follows(${account}), via=likes)`],
  [`intersect(follows(${account}), likes(${account}))`, /cannot combine/, `intersect(follows(${account}), authors(likes(${account})))`],
  [`by(likes(${account}), ${account})`, /not a set/, `by(likes(${account}), members(${account}))`],
  [`intersect(${account}, ${both[0]})`, /not a set/, `intersect(followers(${account}), followers(${both[0]}))`],
  [`likes(${account}, 24h)`, /takes one argument/, `likes(${account}, since=24h)`],
  ['followers(alice.example.com)', /handle.*@/, 'followers(@alice.example.com)'],
  ['followers(@alice)', /neither/, 'followers(@alice.bsky.social)'],
  ['@alice', /is not a handle/, '@alice.bsky.social'],
];
for (const [wrong, message, right] of mistakes) {
  await type(wrong);
  await page.waitForSelector('#out .error a');
  expect(message.test(await page.textContent('#out .error')) && await page.textContent('#out .error a') === right, `${wrong}: did you mean ${await page.textContent('#out .error a')}`);
  await page.click('#out .error a');
  await until(q => document.querySelector('#q').value === q && !document.querySelector('#out[aria-busy]'), right);
  const [now, handles] = [await page.textContent('#out'), right.includes('@')];
  expect(handles ? /handles are not/.test(now) : !/Invalid query/.test(now), 'and the correction is valid');
}
await type(`rank(of=follows(${account}), via=likes, except=likes(oops))`);
await page.waitForSelector('#out .error pre');
{
  const [line, caret] = (await page.textContent('#out .error pre')).split('\n');
  expect(line.slice(caret.length - 1).startsWith('oops'), 'an error in a parameter is marked there');
  await page.click('#out .error button');
  expect(await page.evaluate(() => document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)) === 'oops', 'and selected for correction');
}

// Going back restores the scroll position.
await typeSet(`likes(${both[0]})`);
await page.evaluate(() => scrollTo(0, 300));
await page.evaluate(() => document.querySelectorAll('#out .members a[data-link]')[8].click());
await page.waitForSelector('#out .cards');
await page.goBack();
await until(() => scrollY === 300);
expect(true, 'going back restores the scroll position');

// Watching a set.
await typeSet(`followers(${account})`);
await action('Watch');
await until(() => /now \d+; no changes yet/.test(document.querySelector('#out').textContent));
expect(true, 'a set is watched, and its members counted: ' + await page.textContent('#out [role=status]'));
await action('Stop watching');
await typeSet(`followers(${account}, since=7d)`);
await action('Watch');
await until(() => /Cannot watch this/.test(document.querySelector('#out').textContent));
expect(true, 'a set with a window cannot be watched, with the reason');

// A member that enters and leaves is listed once.
await page.routeWebSocket(/subscribe/, ws => {
  ws.send(JSON.stringify({type: 'did', cursor: '1'}));
  ws.onMessage(() => {});
  for (const change of [{entered: both.slice(0, 2)}, {left: both.slice(0, 1)}, {entered: both.slice(0, 1)}]) ws.send(JSON.stringify({...change, cursor: '2'}));
});
await page.goto(base + '/'); // the interception applies from the next page load
await typeSet(`likers(${post})`);
await action('Watch');
await until(() => document.querySelectorAll('#out [role=log] li').length > 1);
expect(JSON.stringify(await page.$$eval('#out [role=log] li', list => list.map(li => li.dataset.member + /added|removed/.exec(li.textContent)))) === JSON.stringify([both[0] + 'added', both[1] + 'added']), 'a member that enters, leaves and enters is listed once');
await until(() => /^Watching: now \d+; 3 added, 1 removed\.$/.test(document.querySelector('#out [role=status]').textContent));
expect(true, 'and every change is counted: ' + await page.textContent('#out [role=status]'));
await action('Stop watching');

// The position of an error.
await type(`intersect(follows(${account}), folowers(${account}))`);
const [line, caret] = (await page.textContent('#out .error pre')).split('\n');
expect(line.slice(caret.length - 1).startsWith('folowers'), 'the caret is at the error');
await axe('an error');
await type('alice.example.com');
await page.waitForSelector('#out [role=alert]');
expect(/handles are not|unknown|nobody has/.test(await page.textContent('#out')), 'a handle: ' + await page.textContent('#out [role=alert]'));

// Names are shown only if the viewer allows it, and the browser remembers that.
expect(outside.length === 0, 'no other server was contacted' + outside.join(' '));
await type(`follows(${account})`);
await page.check('#names');
await until(() => document.querySelectorAll('#out .members b').length > 0);
expect(/Person/.test(await page.textContent('#out .members:not([hidden])')), 'names, once they are allowed');
expect(outside.length > 0 && outside.every(u => u.startsWith('https://public.api.bsky.app/')), 'only from public.api.bsky.app');
await page.screenshot({path: shots + '/set-names.png'});
await type(`likes(${both[0]})`);
await until(() => document.querySelectorAll('#out .words').length > 0);
expect((await members())[0] === 'Post 0 <b>says</b>', 'the text of a post, as text: ' + (await members())[0]);
await type(post);
await until(() => document.querySelector('#out .facts b'));
expect((await page.$$eval('#out b', list => list.map(b => b.textContent))).filter(t => t.startsWith('Person')).length === 1, 'the author of a post is named once: ' + await page.textContent('#out .facts'));
await type(`intersect(follows(${account}), likers(${post}))`);
await until(() => /@person/.test(document.querySelector('#out h2').textContent));
expect(/^intersect\(follows\(@person\d+\.example\.com\), likers\(“Post \d+ .*”\)\)$/.test(await page.textContent('#out h2')), 'an expression shows names: ' + await page.textContent('#out h2'));
await until(() => /followed by @person.*like “Post/.test(document.querySelector('#out .legend')?.textContent));
expect(true, 'and so does its picture');
const listed = await page.$$eval('#out .members [data-member]', list => list.map(e => e.dataset.member));
expect(new Set(listed).size === listed.length, 'no member is listed twice');
await type(account);
await until(() => document.querySelector('#out h2 b'));
expect(/^Person 0 @person0/.test(await page.textContent('#out h2')), 'the name of an account: ' + await page.textContent('#out h2'));
await type(`follows(${account})`);
await until(() => document.querySelectorAll('#out .members b').length > 0);
await page.reload();
await until(() => document.querySelectorAll('#out .members b').length > 0);
await page.uncheck('#names');
const asked = outside.length;
await page.reload();
await answered();
await page.waitForTimeout(300);
expect(outside.length === asked, 'no names, once they are off');

// On the public network names are shown unless the viewer turns them off.
await page.evaluate(() => localStorage.setItem('names', ''));
await page.goto(base + '/?' + new URLSearchParams({q: `follows(${account})`}));
await until(() => document.querySelectorAll('#out .members b').length > 0);
expect(await page.isChecked('#names'), 'names are shown on the public network');
await page.uncheck('#names');
await page.reload();
await answered();
await page.waitForTimeout(300);
expect(!(await page.isChecked('#names')) && await page.$('#out .members b') === null, 'unless the viewer turns them off');
await page.evaluate(() => localStorage.clear());

await typing(the);
await waits(the);
await feeds(the);
await graphs(the);
await pictures(the);
await states(the, [['status', {status: ''}, '#now:not([hidden])'], ['you', {}, '#out form'], ['account', {q: account}]]);

// The keyboard reaches everything.
await page.goto(base + '/');
await page.waitForSelector('#out .cards');
const reached = new Set();
for (let i = 0; i < 55; i++) {
  await page.keyboard.press('Tab');
  reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName));
}
for (const id of ['skip', 'q', 'BUTTON', 'names']) expect(reached.has(id), 'Tab reaches ' + id);

for (const [name, options, path] of [
  ['light', {colorScheme: 'light', width: 1100}, '/'],
  ['dark', {colorScheme: 'dark', width: 1100}, '/?' + new URLSearchParams({q: ranking})],
  ['narrow', {colorScheme: 'light', width: 360}, '/?' + new URLSearchParams({q: account})],
]) {
  await page.emulateMedia({colorScheme: options.colorScheme});
  await page.setViewportSize({width: options.width, height: options.width < 500 ? 740 : 900});
  await page.goto(base + path);
  await until(() => document.querySelector('#tiles div') && document.querySelector('#out').childElementCount > 0 && !document.querySelector('#out[aria-busy], #out [aria-busy]'));
  await axe(name);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name + ': no wider than the window');
  await page.screenshot({path: `${shots}/${name}.png`});
}

expect(logged.length === 0, 'the console logs nothing' + logged.map(s => '\n       ' + s).join(''));
await browser.close();
console.log(`${wrong} wrong`);
process.exit(wrong > 0 ? 1 : 0);
