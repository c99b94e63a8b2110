// Parts of check.mjs: the feeds, the graphs, the pictures of answers; and of demo.mjs: the states.

// untilOf returns a function that waits for a condition. The page's policy forbids waitForFunction.
export const untilOf = page => async (condition, arg, timeout = 10000) => {
  for (const end = Date.now() + timeout; ; await page.waitForTimeout(50)) {
    if (await page.evaluate(condition, arg).catch(() => false)) return;
    if (Date.now() > end) throw new Error('timed out waiting for ' + condition + ' ' + arg + '\n' + (await page.textContent('#out').catch(() => '')));
  }
};

// axeOf returns a function that checks a state of the page with axe-core.
export const axeOf = (page, source, expect) => async where => {
  await page.evaluate(source);
  const {violations} = await page.evaluate(() => axe.run());
  expect(violations.length === 0, `axe-core, ${where}: ${violations.length} found` + violations.map(v => `\n       ${v.impact} ${v.id}: ${v.nodes.map(n => n.html).slice(0, 3).join(' ')}`).join(''));
};

// feeds checks the page of feeds: templates, a feed for any viewer, its errors, its texts, and its record.
export async function feeds({page, base, shots, account, follows, records, hidden, expect, until, axe, facts, action, lines}) {
  const picture = async name => {
    await axe('a feed, ' + name);
    await page.setViewportSize({width: 360, height: 1100});
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name + ': no wider than a phone');
    await page.screenshot({path: `${shots}/feed-${name}.png`});
    await page.setViewportSize({width: 1100, height: 900});
  };
  const posts = () => page.$$eval('#out .members li', list => list.map(li => li.dataset.member));
  const showed = line => until(l => document.querySelector('#out textarea')?.value === l && !document.querySelector('#out[aria-busy]'), line);
  await page.goto(base + '/');
  await page.waitForSelector('#out section a');
  const cards = await page.$$eval('#out section li', list => list.map(li => [li.querySelector('b').textContent, li.querySelector('code').textContent, li.querySelector('a') ? '' : li.querySelector('small').textContent]));
  expect(cards.length === 5, 'five templates: ' + cards.map(c => c[0]));
  expect(cards.every(([, line, lacks]) => /posts|tagged/.test(line) === /^This server does not index (posts|tagged)\(/.test(lacks)), 'and what the server lacks: ' + cards.map(c => c[2]).filter(Boolean));
  await picture('templates');
  await page.fill('#q', 'friends = rank(of=follows($viewer), via=likes)');
  await page.press('#q', 'Enter');
  await page.waitForSelector('#whom');
  expect(await page.$('#out .members') === null, 'a feed for a viewer asks for the viewer');
  await page.click('.follow button');
  expect(/^Enter an account/.test(await page.$eval('#whom', e => e.validationMessage)), 'and needs one');
  await picture('viewer');
  await page.fill('#whom', account);
  await page.click('.follow button');
  await page.waitForSelector('#out .members li');
  const likedPosts = new Set(records.filter(r => r.collection === 'app.bsky.feed.like' && follows.has(r.did) && !hidden(r.did) && /\/app\.bsky\.feed\.post\//.test(r.subject)).map(r => r.subject));
  await action('Copy all');
  await until(() => /^Copied/.test(document.querySelector('#out [role=status]').textContent));
  const feed = lines(await page.evaluate(() => navigator.clipboard.readText()));
  expect(feed.length === likedPosts.size && feed.every(p => likedPosts.has(p)), `the feed has ${feed.length} posts, want ${likedPosts.size}`);
  expect(new URL(page.url()).searchParams.get('viewer') === account && await page.inputValue('#whom') === account, 'the page’s address leads to the feed');

  // Its texts: off, on, and out of reach.
  await page.click('#out button:text-is("Show the texts")');
  await page.waitForSelector('#out .members .words');
  expect(/^Post \d+ <b>says<\/b>$/.test(await page.textContent('#out .members .words')), 'the texts of the posts: ' + await page.textContent('#out .members .words'));
  await picture('texts');
  for (const [how, answer] of [['reached', route => route.abort()], ['answering', route => route.fulfill({status: 503, json: {}, headers: {'access-control-allow-origin': '*'}})]]) {
    await page.route('https://public.api.bsky.app/**', answer);
    await page.reload();
    await page.waitForSelector('#names-failed:not([hidden])');
    expect((await posts()).length > 0, `the page says that texts are missing if their service is not ${how}`);
    await page.unroute('https://public.api.bsky.app/**');
  }
  await picture('unreachable');
  await page.uncheck('#names');

  // Publishing it.
  await action('Publish');
  await page.click('#out .curl button:visible');
  const {collection, rkey, record} = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  expect(collection === 'app.bsky.feed.generator' && record.$type === collection && rkey === 'friends' && record.did === 'did:web:feeds.example.com' && Date.parse(record.createdAt) <= Date.now(), 'the record that publishes it: ' + JSON.stringify(record));
  await picture('record');

  // The line is edited by keyboard, and a mistake marked and corrected there.
  const edit = async line => {
    await page.fill('#out textarea', line);
    await page.press('#out textarea', 'Enter');
  };
  await edit('few = rank(of=folows($viewer), via=likes)');
  await page.waitForSelector('#out .error a');
  expect((await page.textContent('#out .error pre')).split('\n')[1].length === 'few = rank(of=^'.length, 'a mistake is marked: ' + await page.textContent('#out .error'));
  await page.click('#out .error button');
  expect(await page.evaluate(() => { const e = document.activeElement; return e.value.slice(e.selectionStart, e.selectionEnd); }) === 'folows', 'and selected');
  await picture('error');
  await page.click('#out .error a');
  await showed('few = rank(of=follows($viewer), via=likes)');
  expect(await page.inputValue('#whom') === account && (await posts()).length > 0, 'the correction keeps the viewer');
  await edit('few = mix(1, likes($viewer), 2, lieks($viewer)), each=1');
  await page.waitForSelector('#out .error a');
  expect(await page.textContent('#out .error a') === 'few = mix(1, likes($viewer), 2, likes($viewer)), each=1' && !(await page.$('#out .error pre')), 'in a mix too: ' + await page.textContent('#out .error'));
  await page.click('#out .error a');
  await page.waitForSelector('#out .members li');
  await edit(`few = likes(${account})`);
  await page.waitForSelector('#out .members li');
  expect((await posts()).length > 0, 'another line shows another feed: ' + await facts());
  await page.fill('#q', `all = likes(${account})`);
  await page.press('#q', 'Enter');
  await showed(`all = likes(${account})`);
  expect(await page.inputValue('#whom') === '' && (await posts()).length > 0, 'a line in the box above shows its feed, without a viewer');
}

// graphs checks that a spike does not flatten the graph but is cut and marked, and that the axes
// have labels.
export async function graphs({page, base, expect, until}) {
  await page.goto(base + '/?status');
  await until(() => document.querySelector('#events-chart .line').getAttribute('d')?.includes('L'), null, 15000);
  for (const [what, values, ticks, peak] of [
    ['a spike', Array.from({length: 300}, (_, i) => i === 20 ? 123456 : 40 + i % 7), ['0', '50', '100', '150'], 'peak 123.5K (off the scale)'],
    ['a burst at the start', [9000, 8000, 7000, ...Array(20).fill(20)], ['0', '20', '40', '60'], 'peak 9K (off the scale)'],
    ['a quiet stream', Array.from({length: 300}, (_, i) => i % 50 ? 0 : 8), ['0', '5', '10'], null],
    ['nothing', Array(60).fill(0), ['0', '1'], null],
    ['removals', Array.from({length: 60}, (_, i) => i % 2 ? -30 : 10), ['-40', '-20', '0', '20'], null],
  ]) {
    const [heights, labels, mark, text] = await page.evaluate(values => {
      draw('events-chart', 'Events', values);
      const figure = document.querySelector('#events-chart');
      const heights = figure.querySelector('.line').getAttribute('d').split(/[ML]/).filter(Boolean).map(p => 100 - Number(p.split(' ')[1])).sort((a, b) => a - b);
      return [heights, [...figure.querySelectorAll('.tick')].map(e => e.textContent), figure.querySelector('.peak')?.textContent ?? null, figure.querySelector('.plot').getAttribute('aria-label')];
    }, values);
    expect(JSON.stringify(labels) === JSON.stringify(ticks) && mark === peak, `${what}: axis ${labels}, ${mark}; ${text}`);
    if (peak) expect(heights[heights.length >> 1] > 20 && heights[heights.length >> 1] < 80, `${what}: the rest is at ${heights[heights.length >> 1]} % of the height`);
  }
  expect(/^\d+ (s|min) ago\d+ (s|min)now$/.test(await page.textContent('#events-chart .ages')), 'and a time axis: ' + await page.textContent('#events-chart .ages'));
}

// states checks pages as a person sees them, on a desk in the light and on a phone in the dark.
export async function states({page, base, shots, expect, until, axe}, list) {
  for (const [name, state, ready = '#out h2'] of list) {
    for (const [colorScheme, width] of [['light', 1100], ['dark', 360]]) {
      await page.emulateMedia({colorScheme});
      await page.setViewportSize({width, height: 900});
      await page.goto(base + '/?' + new URLSearchParams(state));
      await page.waitForSelector(ready);
      await until(() => !document.querySelector('#out[aria-busy], #out [aria-busy]') && [...document.images].every(i => i.complete || i.getBoundingClientRect().top > innerHeight));
      await axe(`${name}, ${colorScheme}`);
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: no wider than the window of ${width}`);
      await page.screenshot({path: `${shots}/${name}-${colorScheme}.png`, fullPage: true});
    }
  }
  await page.emulateMedia({colorScheme: 'light'});
  await page.setViewportSize({width: 1100, height: 900});
}

// pictures checks the pictures of combined sets against the truth: each part has the size that the
// records give it, and leads to its members.
export async function pictures(the) {
  const {page, base, likers, expect, until} = the;
  const few = Object.entries(likers).filter(([p]) => p.startsWith('at://did:')).sort((a, b) => b[1].size - a[1].size).slice(0, 7);
  const sets = few.map(([p]) => `likers(${p})`), number = text => Number(text.replace(/\D/g, ''));
  const open = async q => {
    await page.goto(base + '/?' + new URLSearchParams({q}));
    await page.waitForSelector('#out .picture:not([aria-busy])');
  };
  // parts returns the sizes of the parts of n sets.
  const parts = n => {
    const sizes = {};
    for (const did of new Set(few.slice(0, n).flatMap(([, by]) => [...by]))) {
      const mask = few.slice(0, n).map(([, by]) => Number(by.has(did))).join('');
      sizes[mask] = (sizes[mask] || 0) + 1;
    }
    return sizes;
  };
  const kept = {intersect: m => !m.includes('0'), union: () => true, except: m => /^10*$/.test(m), atleast: m => m.replaceAll('0', '').length > 1};
  for (const [operator, n] of [['intersect', 2], ['union', 3], ['except', 2], ['except', 3], ['atleast', 4], ['union', 5], ['intersect', 4]]) {
    const q = `${operator}(${operator === 'atleast' ? '2, ' : ''}${sets.slice(0, n).join(', ')})`, sizes = parts(n);
    await open(q);
    const drawn = await page.$$eval('.picture svg a, .picture .rows a', list => list.map(a => [a.getAttribute('aria-label'), a.closest('.kept') !== null, a.getAttribute('href')]));
    const sorted = list => list.sort((a, b) => a - b).join(' '), wanted = Object.entries(sizes), all = ([, size]) => size;
    expect(sorted(drawn.map(([name]) => parseInt(name))) === sorted(wanted.map(all)), `${n < 4 ? 'circles' : 'rows'} of ${operator} of ${n}: ${drawn.map(([name]) => parseInt(name))}`);
    expect(sorted(drawn.filter(d => d[1]).map(([name]) => parseInt(name))) === sorted(wanted.filter(([m]) => kept[operator](m)).map(all)), 'the answer is filled');
    for (const [name, , href] of drawn) {
      const {total} = await (await page.request.get(base + '/xrpc/blue.skein.graph.query?' + new URLSearchParams({set: new URL(href, base).searchParams.get('q'), count: 'true'}))).json();
      expect(total === parseInt(name), `${name.slice(0, 30)}… leads to ${total}`);
    }
    expect(JSON.stringify((await page.$$eval('.legend strong', list => list.map(e => e.textContent))).map(number)) === JSON.stringify(few.slice(0, n).map(([, by]) => by.size)), 'with the sizes of the sets');
  }
  await open(`intersect(${sets.slice(0, 2).join(', ')})`);
  const shared = await page.getAttribute('.picture .kept', 'aria-label');
  await page.focus('.picture .kept');
  await page.keyboard.press('Enter');
  await until(() => !document.querySelector('#out[aria-busy]') && document.querySelector('#out .facts'));
  expect(parseInt(await page.textContent('#out .facts')) === parseInt(shared), 'a part opens by keyboard');

  // A matrix of many sets, typed in the box or compared line by line.
  const cells = () => page.$$eval('.matrix td:not(:empty)', list => list.map(td => Number(td.textContent.replace(/\D/g, ''))));
  const pairs = few.flatMap(([, a]) => few.map(([, b]) => [...a].filter(d => b.has(d)).length));
  await open(`union(${sets.join(', ')})`);
  expect(JSON.stringify(await cells()) === JSON.stringify(pairs), 'the matrix of seven sets: ' + (await cells()).slice(0, 7));
  await page.goto(base + '/?overlap=');
  await page.fill('#compared', few.map(([p], i) => i ? p : sets[0]).join('\n'));
  await page.click('#out form button');
  await page.waitForSelector('#out .picture:not([aria-busy])');
  expect(JSON.stringify(await cells()) === JSON.stringify(pairs), 'and of seven lines');
  const table = await (await page.request.get(base + await page.getAttribute('#out a[download]', 'href'))).text();
  expect(table.trim().split('\n').length === 1 + 7 * 8 / 2, 'with a table: ' + table.split('\n')[0]);
  await page.click('.matrix td a:text-is("' + pairs[1] + '")');
  await until(() => document.querySelector('.picture.venn:not([aria-busy])'));
  expect(parseInt(await page.textContent('#out .facts')) === pairs[1], 'a cell leads to its members');

  // A picture says what it lacks, or that it failed.
  for (const [how, answer, says] of [
    ['incomplete', async route => { const response = await route.fetch(); await route.fulfill({response, json: {...await response.json(), incomplete: true, reason: 'the index is young'}}); }, /may be incomplete: the index is young/],
    ['failed', route => route.fulfill({status: 503, json: {error: 'Busy', message: 'try again later'}}), /try again later\./],
  ]) {
    await page.route('**/xrpc/blue.skein.graph.overlap?**', answer);
    await open(`intersect(${sets.slice(0, 2).join(', ')})`);
    expect(says.test(await page.textContent('#out .picture')), `an ${how} picture says so`);
    await page.unroute('**/xrpc/blue.skein.graph.overlap?**');
  }
  await states(the, [['circles-two', {q: `intersect(${sets.slice(0, 2)})`}], ['circles-three', {q: `except(${sets.slice(0, 3)})`}], ['rows', {q: `atleast(2, ${sets.slice(0, 4)})`}], ['matrix', {overlap: sets.join('\n')}]]);

  // The visitor says who they are, once.
  await page.goto(base + '/');
  await page.fill('#whom', the.account);
  await page.click('.follow button');
  await until(() => /accounts?$/.test(document.querySelector('#out section small')?.textContent || '') || /\d account/.test(document.querySelector('#out .cards')?.textContent));
  const mine = await page.textContent('#out .cards');
  await page.reload();
  await page.waitForSelector('#out h3.head');
  expect(/YouYour circle|You/.test(mine) && (await page.getAttribute('#out .cards a', 'href')).includes(encodeURIComponent(the.account)), 'the cards are about the visitor');
  await states(the, [['you-known', {}, '#out h3.head']]);
  await page.click('#out h3.head button');
  await page.waitForSelector('#whom');
  expect(await page.evaluate(() => !localStorage.getItem('me')), 'and it can be forgotten');
}
