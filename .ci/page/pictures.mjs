// Makes the README's two pictures from a running skein demo (make pictures):
//
//   node pictures.mjs http://127.0.0.1:3210 FOLDER /usr/bin/chromium
import {chromium} from 'playwright-core';

const [base, folder, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
const {examples} = await (await fetch(base + '/page/config.json')).json();
for (const [name, colorScheme, {q}] of [['page', 'light', examples[0]], ['page-dark', 'dark', examples.find(e => e.q.startsWith('@'))]]) {
  const page = await browser.newPage({viewport: {width: 1000, height: 760}, colorScheme});
  await page.goto(base + '/?' + new URLSearchParams({q}));
  await page.waitForSelector('#out img');
  while (await page.evaluate(() => document.querySelector('#out [aria-busy]') || [...document.images].some(i => !i.complete && i.getBoundingClientRect().top < innerHeight))) await page.waitForTimeout(50);
  await page.screenshot({path: `${folder}/${name}.png`});
}
await browser.close();
