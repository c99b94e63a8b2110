// Opens the page of a running skein demo: its questions are proposed, all of them have an
// answer, and the people in it have names and pictures; nobody else is asked.
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
const said = [];
page.on('console', m => said.push(m.type() + ': ' + m.text()));
page.on('pageerror', e => said.push('error: ' + e));
page.on('request', r => { if (!r.url().startsWith(base)) said.push('asked: ' + r.url()); });
await page.addInitScript(() => addEventListener('securitypolicyviolation', e => console.warn('policy: ' + e.violatedDirective + ' ' + e.blockedURI)));
await page.goto(base + '/');
await page.waitForSelector('#out a', {timeout: 30_000});
expect(await page.isHidden('#names'), 'names are not asked of anybody');
for (const [title, href] of await page.$$eval('#out a', list => list.map(a => [a.textContent, a.getAttribute('href')]))) {
  await page.goto(base + href);
  await page.waitForSelector('#out [data-member] b');
  await page.waitForSelector('#out [data-member] img');
  await page.waitForTimeout(300);
  expect(await page.$eval('#out [data-member] img', i => i.complete && i.naturalWidth > 0), title + ': ' + (await page.textContent('#out [data-member]')));
  expect(!(await page.$('#out .error')), title + ': no error');
}
expect(said.length === 0, 'the console says nothing, and nobody else is asked' + said.map(s => '\n       ' + s).join(''));
await browser.close();
process.exit(wrong > 0 ? 1 : 0);
