// Parts of check.mjs: the feeds, the graphs, the pictures of answers, what is typed and what is waited for; and of demo.mjs: the states.

import {readFileSync} from 'node:fs';

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
  await page.route('**/page/config.json', async route => { // without accounts to ask about
    const response = await route.fetch();
    await route.fulfill({response, json: {...await response.json(), accounts: [], public: true}});
  });
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
  await page.unroute('**/page/config.json');
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
  const {page, base, shots, likers, expect, until} = the;
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

  // The circles are saved as they look, with their legend.
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({colorScheme});
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#out .bar button:text-is("Save picture")')]);
    const svg = readFileSync(await download.path(), 'utf8'), other = await page.context().newPage();
    await other.setViewportSize({width: 900, height: 1100});
    await other.setContent(svg);
    await other.screenshot({path: `${shots}/saved-${colorScheme}.png`});
    const colors = await other.$$eval('svg > circle', list => list.map(c => getComputedStyle(c).stroke)), texts = await other.$$eval('text', list => list.map(t => t.textContent));
    expect(/^skein-intersect.*\.svg$/.test(download.suggestedFilename()) && !svg.includes('href') && new Set(colors).size === 2 && !colors.includes('none') && !svg.includes('undefined') && texts.join('').replace(/\s/g, '').includes(`B: Accounts that like ${few[1][0]} ${few[1][1].size}`.replace(/\s/g, '')) && texts.includes('B') && texts.some(t => t.startsWith('intersect(')) && texts.some(t => t.includes('Source: 127.0.0.1:4210, as of 2')), `${colorScheme} circles are saved: ${texts} ${colors}`);
    await other.close();
  }
  await page.focus('.picture .kept');
  await page.keyboard.press('Enter');
  await until(() => !document.querySelector('#out[aria-busy]') && document.querySelector('#out .facts'));
  expect(parseInt(await page.textContent('#out .facts')) === parseInt(shared), 'a part opens by keyboard');

  // A matrix of many sets, typed in the box or compared line by line.
  const cells = () => page.$$eval('.matrix td:not(:empty)', list => list.map(td => Number(td.textContent.replace(/\D/g, ''))));
  const pairs = few.flatMap(([, a]) => few.map(([, b]) => [...a].filter(d => b.has(d)).length));
  await open(`union(${sets.join(', ')})`);
  expect(JSON.stringify(await cells()) === JSON.stringify(pairs), 'the matrix of seven sets: ' + (await cells()).slice(0, 7));
  for (const n of [2, 3]) {
    await page.goto(base + '/?' + new URLSearchParams({overlap: few.slice(0, n).map(([p]) => p).join('\n')}));
    await page.waitForSelector('.venn:not([aria-busy])');
    const drawn = await page.$$eval('.venn svg a', list => list.map(a => parseInt(a.getAttribute('aria-label')))), sort = list => list.sort((a, b) => a - b).join(' ');
    expect(sort(drawn) === sort(Object.values(parts(n))) && !/filled/.test(await page.textContent('.venn')), `circles of ${n} sets that are compared: ${drawn}`);
  }
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

  // A picture says which set lacks something, and why, or that it failed.
  await page.route('**/xrpc/blue.skein.graph.query?**count=true', async route => {
    const response = await route.fetch(), lacks = new URL(route.request().url()).searchParams.get('set') === sets[1];
    await route.fulfill({response, json: {...await response.json(), ...lacks && {incomplete: true, reason: 'the index is young'}}});
  });
  for (const [how, answer, says] of [
    ['incomplete', async route => { const response = await route.fetch(); await route.fulfill({response, json: {...await response.json(), incomplete: true, reason: 'the index is young'}}); }, /B may be incomplete: the index is young\./],
    ['failed', route => route.fulfill({status: 503, json: {error: 'Busy', message: 'try again later'}}), /try again later\./],
  ]) {
    await page.route('**/xrpc/blue.skein.graph.overlap?**', answer);
    await open(`intersect(${sets.slice(0, 2).join(', ')})`);
    expect(says.test(await page.textContent('#out .picture')), `an ${how} picture says so`);
    await page.unroute('**/xrpc/blue.skein.graph.overlap?**');
  }
  await page.unroute('**/xrpc/blue.skein.graph.query?**count=true');
  const fits = await page.evaluate(() => [[0, true], [4, true], [4, false]].map(([members, known]) => {
    Object.assign(latest, {members});
    Object.assign(config, {public: known});
    return fitting().textContent;
  }));
  await page.evaluate(() => Object.assign(config, {public: true}));
  expect(/--store mine --around @YOUR.*300 GB/.test(fits[0]) && /serve --around …,@YOUR.*--store all --backfill repos.*300 GB/.test(fits[1]) && !/300 GB/.test(fits[2]), 'how to complete it fits the server: ' + fits);
  await states(the, [['circles-two', {q: `intersect(${sets.slice(0, 2)})`}], ['circles-three', {q: `except(${sets.slice(0, 3)})`}], ['rows', {q: `atleast(2, ${sets.slice(0, 4)})`}], ['matrix', {overlap: sets.join('\n')}], ['compared', {overlap: sets.slice(0, 2).join('\n')}]]);

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

// shown checks what a page shows at present, as states does.
const shown = async ({page, shots, expect, axe}, name) => {
  for (const [colorScheme, width] of [['dark', 360], ['light', 1100]]) {
    await page.emulateMedia({colorScheme});
    await page.setViewportSize({width, height: 900});
    await axe(`${name}, ${colorScheme}`);
    expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name}: no wider than the window of ${width}`);
    await page.screenshot({path: `${shots}/${name}-${colorScheme}.png`});
  }
};

// typing checks what is proposed at each place, and the sentences of the home page.
export async function typing(the) {
  const {page, base, account, post, expect, until, type, outside} = the;
  const proposed = () => page.$$eval('#q-words li', list => list.map(li => li.firstChild.textContent));
  const propose = async text => {
    await page.fill('#q', text);
    await page.press('#q', 'Escape');
    await page.press('#q', 'ArrowDown');
    return proposed();
  };
  const a = account;
  for (const [text, right, wrong] of [
    ['', ['followers', 'likes', 'intersect', 'rank'], ['since=']],
    [`intersect(followers(${a}), `, ['follows', 'likers', 'listed', 'union', 'authors'], ['likes', 'reposts', 'by', 'since=']],
    [`union(likes(${a}), `, ['likes', 'reposts', 'by'], ['followers', 'likers', 'authors']],
    [`by(likes(${a}), except(`, ['follows', 'likers'], ['likes']],
    ['authors(', ['likes'], ['likers', 'followers']],
    [`likes(${a}, `, ['since=', 'until='], ['by=', 'followers']],
    [`likes(${a}, since=24h, `, ['until='], ['since=']],
    [`likes(${a}, since=`, ['24h', '7d'], ['followers']],
    [`rank(of=follows(${a}), via=`, ['likes', 'follows', 'lists'], ['likers', 'listed', 'authors', 'intersect']],
    [`rank(of=likes(${a}), via=`, ['likers', 'authors'], ['likes', 'followers']],
    [`rank(of=follows(${a}), via=likes, `, ['by=', 'top=', 'except='], ['of=', 'via=', 'seed=']],
    [`union(likes(${a}), rank(of=follows(${a}), via=likes, `, ['top='], ['by=', 'subjectsSince=']],
    [`rank(of=follows(${a}), via=likes, by=`, ['count', 'share', 'lift'], ['likes']],
    [`blend(2, `, ['rank'], ['followers']],
    [`within(${a}, `, ['1', '2'], ['followers']],
    ['friends = rank(of=', ['follows', 'likes'], ['of=']],
  ]) {
    const found = await propose(text);
    expect(right.every(w => found.includes(w)) && !wrong.some(w => found.includes(w)), `after “${text}”: ${found.slice(0, 12)}`);
  }
  await propose(`rank(of=follows(${a}), via=likes, `);
  await shown(the, 'typing-options');

  // Accounts: those of earlier queries, those that the page has seen, and those that are searched for.
  await type(`intersect(follows(${a}), likers(${post}))`);
  expect((await propose('likers(')).includes(post), 'a post of an earlier query');
  expect((await propose('followers(')).includes(a), 'an account of an earlier query');
  const before = outside.length;
  await page.fill('#q', '');
  await page.focus('#q');
  await page.keyboard.type('followers(@pers');
  await until(() => document.querySelector('#q-words').hidden);
  expect(outside.length === before, 'nobody is searched for while names are off');
  await page.check('#names');
  await page.focus('#q');
  await Promise.all([page.waitForRequest(/searchActorsTypeahead\?limit=8&q=perso$/), page.keyboard.type('o')]);
  await until(() => /@person1\./.test(document.querySelector('#q-words').textContent));
  expect(true, 'then they are: ' + await page.textContent('#q-words'));
  await shown(the, 'typing-people');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  expect(await page.inputValue('#q') === `followers(${a}`, 'one is chosen by keyboard: ' + await page.inputValue('#q'));
  await page.uncheck('#names');

  // The sentences of the home page.
  await page.route('**/page/config.json', async route => {
    const response = await route.fetch();
    await route.fulfill({response, json: {...await response.json(), examples: [
      {title: 'Who follows both?', q: `intersect(followers(${a}), likers(${post}))`}, {title: 'What do they like?', q: `rank(of=follows(${a}), via=likes, since=3650d)`}, {title: 'For you', q: `rank(of=likes(${a}), via=likers, damp=0.5)`},
    ]}});
  });
  await page.goto(base + '/');
  await page.waitForSelector('.sentence');
  expect(JSON.stringify(await page.$$eval('.sentence', list => list.map(f => [...f.childNodes].map(n => n.querySelector ? n.querySelector('input')?.getAttribute('aria-label') || n.textContent : n.textContent).join('').trim()))) ===
    '["Accounts that follow account and like post Show","Posts liked by those that are followed by account, in the last 3650d Show"]', 'sentences: ' + await page.$$eval('.sentence', list => list.map(f => f.textContent)));
  await shown(the, 'sentences');
  await page.fill('.sentence input', post);
  await page.click('.sentence button');
  expect(/^Enter an account/.test(await page.$eval('.sentence input', i => i.validationMessage)), 'a sentence takes no post for an account');
  const other = [...the.follows][0];
  await page.fill('.sentence input', other);
  await page.press('.sentence input', 'Enter');
  await until(q => document.querySelector('#out h2')?.textContent === q, `intersect(followers(${other}), likers(${post}))`);
  expect(true, 'an account in a sentence is replaced');
  await page.unroute('**/page/config.json');
}

// waits checks what is shown before an answer comes, when it is stopped, and when there is nothing or not everything.
export async function waits(the) {
  const {page, base, account, post, expect, until, type} = the;
  const heading = text => until(t => document.querySelector('#out h2')?.textContent === t, text);
  const ask = async text => {
    await page.fill('#q', text);
    await page.press('#q', 'Enter');
  };
  await type(`follows(${account})`);
  await heading(`follows(${account})`);
  await page.route('**/xrpc/blue.skein.graph.{list,query}?**', () => { /* no answer comes */ });
  await ask(`likers(${post})`);
  await page.waitForSelector('#waiting button');
  await heading(`likers(${post})`);
  expect(await page.$('#out .members') === null, 'the answer before leaves with its heading');
  await until(() => /for [2-9] s/.test(document.querySelector('#waiting').textContent));
  expect(/^Working for \d s Stop$/.test(await page.textContent('#waiting')), 'how long it takes: ' + await page.textContent('#waiting'));
  await shown(the, 'waiting');
  await Promise.all([page.waitForEvent('requestfailed', r => r.url().includes('likers')), ask(`followers(${account})`)]);
  await heading(`followers(${account})`);
  await page.waitForSelector('#waiting button');
  await page.focus('#waiting button');
  await Promise.all([page.waitForEvent('requestfailed', r => r.url().includes('followers')), page.keyboard.press('Enter')]);
  await until(() => /^Stopped/.test(document.querySelector('#waiting').textContent));
  expect(await page.$('#out[aria-busy]') === null, 'it is stopped: ' + await page.textContent('#waiting'));
  await shown(the, 'stopped');
  await page.unroute('**/xrpc/blue.skein.graph.{list,query}?**');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#out .facts');
  await heading(`followers(${account})`);
  expect(await page.textContent('#waiting') === '', 'and asked again');

  // Of what an incomplete answer is.
  for (const [name, answer, says] of [
    ['incomplete-account', {reason: `records of ${account} from before the index first saw it are missing`, missing: {accounts: 1, roster: 0, labelers: 0}}, /are missing\. How to.*skein backfill --did did:plc/],
    ['incomplete-all', {reason: 'skein has not read a list of all accounts', missing: {accounts: 1234, roster: 1, labelers: 2}}, /records of 1,234 accounts, 1 list of accounts, labels of 2 labelers\..*--around.*--backfill repos/],
    ['sample', {incomplete: undefined, sample: 'the ranking via likes read the sets of 5 of 8 members'}, /an estimate from a sample: the ranking/],
  ]) {
    await page.route('**/xrpc/blue.skein.graph.list?**', route => route.fulfill({json: {type: 'did', total: 0, items: [], incomplete: true, ...answer}}));
    await type(`follows(${account}, since=${name.length}d)`);
    const details = await page.$('#out .warn summary');
    if (details) await details.click();
    expect(says.test(await page.textContent('#out .warn')), name + ': ' + await page.textContent('#out .warn'));
    expect(/may be some|found/.exec(await page.textContent('#out > p:last-of-type'))?.[0] === (name === 'sample' ? 'found' : 'may be some'), 'no members: ' + await page.textContent('#out > p:last-of-type'));
    await shown(the, name);
    await page.unroute('**/xrpc/blue.skein.graph.list?**');
  }

  // An empty store says how to fill it.
  const sample = await (await page.request.get(base + '/live?history')).json();
  for (const state of ['live', 'off']) {
    await page.route(/\/live(\?|$)/, route => route.fulfill({json: {...sample, edges: 0, state}}));
    await page.goto(base + '/');
    await page.waitForSelector('#empty');
    expect(/--around.*--backfill repos/.test(await page.textContent('#empty')), state + ': ' + await page.textContent('#empty'));
    await shown(the, 'empty-' + state);
    await page.unroute(/\/live(\?|$)/);
  }
  await until(() => !document.querySelector('#empty'));
  expect(true, 'and no longer, once something is indexed');
}
