// Makes the README's two pictures from a running skein demo:
//
//   node pictures.mjs http://127.0.0.1:3210 ../../docs /usr/bin/chromium
import {chromium} from 'playwright-core';

const [base, folder, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
const page = await browser.newPage({viewport: {width: 1100, height: 760}});
await page.goto(base + '/');
await page.waitForTimeout(60_000); // until the graphs show something
await page.screenshot({path: folder + '/page.png'});
const href = await page.getAttribute('#out a[href*="rank"]', 'href');
await page.emulateMedia({colorScheme: 'dark'});
await page.goto(base + href);
await page.waitForTimeout(2500);
await page.screenshot({path: folder + '/page-dark.png'});
await browser.close();
