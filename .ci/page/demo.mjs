// Opens the page of a running skein demo. The page proposes the demo's queries, all of them have
// answers, the people have names and pictures, and the page contacts no other server.
//
//   node demo.mjs URL CHROMIUM
import {chromium} from 'playwright-core';

const [base, executablePath] = process.argv.slice(2);
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
// The chart of a set by time has all members, and a bar leads to those of its bucket.
const sums = () => page.$$eval('.bars > *', list => list.reduce((n, b) => n + Number(b.title.split(': ').at(-1).replace(/\D/g, '')), 0));
await page.goto(base + '/');
await page.waitForSelector('#out a');
const [person] = (await page.textContent('#out')).match(/@[\w.-]+\.test/);
await page.goto(base + '/?' + new URLSearchParams({q: person}));
await page.waitForSelector('.times:not([hidden])');
const followers = Number((await page.textContent('#out .cards small')).replace(/\D/g, ''));
expect(Math.abs(await sums() - followers) <= 5, `the chart of an account has its ${followers} followers: ${await sums()}`);
expect((await page.getAttribute('.times', 'aria-label')).startsWith('New followers per '), 'the chart has a description');
const [title, href] = await page.$eval('.bars > a', a => [a.title, a.getAttribute('href')]);
await page.click('.bars > a');
await page.waitForSelector('#out h2:has-text("since=")');
expect((await page.textContent('#out .facts')).startsWith(title.split(': ').at(-1) + ' account'), `the bar ${title} leads to its members: ${href}`);
// The order of a set can be chosen.
await page.goto(base + '/?' + new URLSearchParams({q: `followers(${person})`}));
await page.waitForSelector('.order');
expect(await page.$eval('.order', e => e.value) === 'newest', 'a set with times is sorted by time');
await page.selectOption('.order', 'size(followers)');
await page.waitForSelector('#out .members .more:has-text("followers")');
const sizes = await page.$$eval('#out .members li', list => list.map(l => parseInt(l.querySelector('.more').textContent.replace(/\D/g, ''))));
expect(sizes.length > 10 && sizes.every((n, i) => i === 0 || n <= sizes[i - 1]), 'most followers first: ' + sizes.slice(0, 5));
expect(logged.length === 0, 'the console logs nothing, and no other server is contacted' + logged.map(s => '\n       ' + s).join(''));
await browser.close();
process.exit(wrong > 0 ? 1 : 0);
