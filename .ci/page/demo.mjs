// Opens the page of a running skein demo. The page proposes the demo's queries, all of them have
// answers, the people have names and pictures, and the page contacts no other server.
//
//   node demo.mjs URL SCREENSHOTS CHROMIUM
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {chromium} from 'playwright-core';
import {axeOf, states, untilOf} from './parts.mjs';

const [base, shots, executablePath] = process.argv.slice(2);
let wrong = 0;
function expect(ok, what) {
  if (!ok) wrong++;
  console.log((ok ? 'ok    ' : 'WRONG ') + what);
}
const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
const page = await browser.newPage({viewport: {width: 1100, height: 900}});
const logged = [];
page.on('console', m => logged.push(m.type() + ': ' + m.text()));
page.on('pageerror', e => logged.push('error: ' + e));
page.on('request', r => { if (!r.url().startsWith(base)) logged.push('request: ' + r.url()); });
await page.addInitScript(() => addEventListener('securitypolicyviolation', e => console.warn('policy: ' + e.violatedDirective + ' ' + e.blockedURI)));
const until = untilOf(page), axe = axeOf(page, readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'), expect);
await page.goto(base + '/');
await page.waitForSelector('#out a', {timeout: 30_000});
expect(await page.isHidden('#names'), 'names come from this server');
for (const [title, href] of await page.$$eval('#out a', list => list.map(a => [a.textContent, a.getAttribute('href')]))) {
  await page.goto(base + href);
  await page.waitForSelector('#out [data-member] b');
  await page.waitForSelector('#out [data-member] img');
  await page.waitForTimeout(300);
  expect(await page.$eval('#out [data-member] img', i => i.complete && i.naturalWidth > 0), title + ': ' + (await page.textContent('#out [data-member]')));
  expect(!(await page.$('#out .error')), title + ': no error');
}
// The templates of feeds show the posts that they promise.
const members = async set => (await (await page.request.get(base + '/xrpc/blue.skein.graph.query?limit=1000&' + new URLSearchParams({set}))).json()).members;
for (const [template, right] of [
  ['Posts with a tag', async p => p.every(([, text]) => text.endsWith('#cats'))],
  ['Posts of a list', async (p, line) => { const on = await members(/listed\([^)]+\)/.exec(line)[0]); return p.every(([uri]) => on.includes(uri.split('/')[2])); }],
  ['Posts of accounts you followed lately', async (p, line, viewer) => { const by = await members(`follows(${viewer}, since=30d)`); return p.every(([uri]) => by.includes(uri.split('/')[2])); }],
]) {
  await page.goto(base + '/');
  await page.click(`#out section a:has(b:text-is("${template}"))`);
  await page.waitForSelector('#out .members .words');
  const shown = await page.$$eval('#out .members li', list => list.map(l => [l.dataset.member, l.querySelector('.it').textContent])), [, newest, next] = shown.map(([uri]) => uri.split('/')[4]);
  expect(shown.length > 5 && newest > next && await right(shown, await page.inputValue('#out textarea'), await page.inputValue('#whom')), `${template}: ${shown.length} posts, such as “${shown[0][1]}”`);
}
await page.click('#out .bar button:text-is("Publish")');
expect((await page.textContent('#out .curl:visible')).includes('"did:web:YOUR.HOST"'), 'a server without a public name says so in the record');
// The chart of a set by time has all members. A part of it, dragged or chosen by keyboard, becomes
// the window of the query.
const bars = () => page.$$eval('.bars > *', list => list.map(b => Number(b.title.split(': ').at(-1).replace(/\D/g, '')))), sum = list => list.reduce((a, b) => a + b, 0);
const total = async () => parseInt((await page.textContent('#out .facts')).replace(/[^\d ]/g, ''));
await page.goto(base + '/');
await page.waitForSelector('#out a');
const [person] = (await page.textContent('#out')).match(/@[\w.-]+\.test/);
const chart = async () => {
  await page.goto(base + '/?' + new URLSearchParams({q: `followers(${person})`}));
  await page.waitForSelector('.times .plot');
};
const window = async what => {
  await until(() => /since=\d{4}-.*until=\d{4}-/.test(document.querySelector('#q').value) && !document.querySelector('#out[aria-busy]'));
  expect(Math.abs(await total() - what) <= 2, `the window has its ${what} members: ${await page.inputValue('#q')}`);
};
await chart();
expect(Math.abs(sum(await bars()) - await total()) <= 5, `the chart has all ${await total()} followers: ${sum(await bars())}`);
expect((await page.getAttribute('.times .plot', 'aria-label')).startsWith('Accounts per '), 'the chart has a description');
const first = await bars();
await page.focus('.plot');
for (const key of ['Home', 'ArrowRight', 'Shift+ArrowRight', 'Shift+ArrowRight', 'Shift+ArrowRight']) await page.keyboard.press(key);
expect(/ to .*: \d/.test(await page.getAttribute('.plot', 'aria-valuetext')), 'a screen reader hears the window: ' + await page.getAttribute('.plot', 'aria-valuetext'));
await page.keyboard.press('Enter');
await window(sum(first.slice(1, 5)));
await chart();
const {x, y, width} = await (await page.$('.plot')).boundingBox();
await page.mouse.move(x + width * .5 / first.length, y + 20);
await page.mouse.down();
await page.mouse.move(x + width * 9.5 / first.length, y + 20, {steps: 4});
await page.mouse.up();
await window(sum(first.slice(0, 10)));
await page.waitForSelector('.times .plot');
await page.focus('.plot');
for (const key of ['Home', 'Enter']) await page.keyboard.press(key);
await until(() => document.querySelector('#q').value.split('since=').length === 2 && document.querySelector('#out h2'));
expect(true, 'a window in a window replaces it: ' + await page.inputValue('#q'));
// An account: its circle is the ranking behind it, and its growth ends at its followers.
await page.goto(base + '/?' + new URLSearchParams({q: person}));
await until(() => document.querySelectorAll('.around img').length > 5 && !document.querySelector('.picture[aria-busy]') && /^\d/.test(document.querySelector('#out .cards small')?.textContent));
const set = new URL(await page.getAttribute('.circle .facts a', 'href'), base).searchParams.get('q');
const {items} = await (await page.request.get(base + '/xrpc/blue.skein.graph.rank?' + new URLSearchParams({set, limit: '30'}))).json(), around = await page.$$eval('.around .face', list => list.map(e => e.dataset.member).slice(1));
expect(/repliers.*authors/.test(set) && around.length > 7 && around.filter(d => items.some(i => i.member === d)).length >= around.length - 2, `the circle has ${around.length} faces of its ranking`);
expect(Math.abs(Number(await page.textContent('.grown b')) - parseInt(await page.textContent('#out .cards small'))) <= 5, 'the growth ends at the followers: ' + await page.textContent('.grown figcaption'));
const hours = await page.$$eval('.hours span', list => list.map(e => e.title));
expect(hours.length === 7 * 24 && hours.some(h => !h.endsWith(': 0')), 'the week: ' + await page.textContent('.week .facts'));
// Times are relative, with the exact one as their title.
await chart();
const times = await page.$$eval('#out time', list => list.map(t => [t.textContent, t.title, t.dateTime]));
expect(times.length > 10 && times.every(([text, title, time]) => /ago|now|yesterday/.test(text) && new Date(title) - new Date(time) < 1000), 'relative times: ' + times[0]);
// A result of a ranking has the faces of those who gave it.
const {examples} = await (await page.request.get(base + '/page/config.json')).json(), ranking = examples.find(e => /^rank\(of=follows/.test(e.q)).q;
await page.goto(base + '/?' + new URLSearchParams({q: ranking}));
await page.waitForSelector('#out .faces img');
const [liked, opens, by] = await page.$eval('#out li:has(.faces)', li => [parseInt(li.querySelector('.more > a').textContent.replace(/\D/g, '')), li.querySelector('.more > a').getAttribute('href'), [...li.querySelectorAll('.face')].map(f => f.dataset.member)]);
const givers = await members(new URL(opens, base).searchParams.get('q'));
expect(by.length === Math.min(5, liked) && by.every(d => givers.includes(d)), `faces of ${by.length} of the ${liked} that liked it`);
// CSV has handles and names.
const [download] = await Promise.all([page.waitForEvent('download'), page.click('#out .bar button:text-is("CSV")')]);
const [head, row] = readFileSync(await download.path(), 'utf8').split('\r\n');
await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], {origin: base});
await page.click('#out .bar button:text-is("Copy all")');
await until(() => /^Copied/.test(document.querySelector('#out [role=status]').textContent));
expect((await page.evaluate(() => navigator.clipboard.readText())).split('\n')[0] === row.split(',').slice(0, 3).join('\t'), 'and so has what is copied');
expect(head === 'member,handle,name,count' && /^at:[^,]+,[\w.-]+\.test,[^,]+ [^,]+,\d+$/.test(row), `the table has handles and names: ${head}: ${row}`);
// The order of a set can be chosen.
await page.goto(base + '/?' + new URLSearchParams({q: `followers(${person})`}));
await page.waitForSelector('.order');
expect(await page.$eval('.order', e => e.value) === 'newest', 'a set with times is sorted by time');
await page.selectOption('.order', 'size(followers)');
await page.waitForSelector('#out .members .more:has-text("followers")');
const sizes = await page.$$eval('#out .members li', list => list.map(l => parseInt(l.querySelector('.more').textContent.replace(/\D/g, ''))));
expect(sizes.length > 10 && sizes.every((n, i) => i === 0 || n <= sizes[i - 1]), 'most followers first: ' + sizes.slice(0, 5));
await states({page, base, shots, expect, until, axe}, [['demo-home', {}, '#out .cards'], ['demo-account', {q: person}], ['demo-circles', {q: examples[0].q}], ['demo-ranking', {q: ranking}, '#out .faces img'], ['demo-set', {q: `followers(${person})`}, '.times .plot']]);
// A card says that its count may lack members.
await page.route('**/xrpc/blue.skein.graph.query?**count=true', async route => {
  const response = await route.fetch();
  await route.fulfill({response, json: {...await response.json(), incomplete: true, reason: 'the index is young'}});
});
await page.goto(base + '/');
await until(() => /\d accounts?, may be incomplete · \d/.test(document.querySelector('#out .cards')?.textContent));
expect(true, 'an incomplete count: ' + await page.textContent('#out .cards small'));
await page.unroute('**/xrpc/blue.skein.graph.query?**count=true');
// On a network that is not public, handles come from the server, and nothing leads to bsky.app.
await page.route('**/page/config.json', async route => {
  const response = await route.fetch();
  await route.fulfill({response, json: {...await response.json(), people: false}});
});
await page.goto(base + '/?' + new URLSearchParams({q: `followers(${person})`}));
await until(() => /^@[\w.-]+\.test$/.test(document.querySelector('#out .members .it')?.textContent));
expect(await page.$('#out .away') === null && await page.isHidden('#names'), 'handles without bsky.app: ' + await page.textContent('#out .members .it'));
await page.unroute('**/page/config.json');
// A person is proposed for the start of a handle, in the box and in the sentences.
for (const [input, typed, button] of [['#q', '@kaito-', '#ask button'], ['.sentence input', '@petra-', '.sentence button']]) {
  await page.goto(base + '/');
  await page.waitForSelector('.sentence input');
  await page.fill(input, '');
  if (input === '#q') for (const key of ['f', 'o', 'l', 'l', 'Tab']) await page.press(input, key);
  await page.type(input, typed);
  const all = () => page.$$eval('.menu:not([hidden]) li', list => list.map(li => li.firstChild.textContent));
  await until(w => [...document.querySelectorAll('.menu:not([hidden]) li')].filter(li => li.textContent.startsWith(w)).length > 5, typed);
  const last = (await all()).at(-1);
  await page.setViewportSize({width: 360, height: 900});
  await axe('people, on a phone');
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${typed}: ${await all()}`);
  await page.screenshot({path: `${shots}/people-${button === '#ask button' ? 'box' : 'sentence'}.png`});
  await page.setViewportSize({width: 1100, height: 900});
  await page.press(input, 'ArrowUp');
  await page.press(input, 'Enter');
  await page.click(button);
  await until(who => document.querySelector('#out h2')?.textContent.includes(who) && !document.querySelector('#out[aria-busy]'), last);
  expect(!(await page.$('#out .error')), 'asked: ' + await page.textContent('#out h2'));
}
expect(logged.length === 0, 'the console logs nothing, and no other server is contacted' + logged.map(s => '\n       ' + s).join(''));
await browser.close();
process.exit(wrong > 0 ? 1 : 0);
