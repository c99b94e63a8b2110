// Two parts of check.mjs: the feeds, and the graphs.

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
  await page.goto(base + '/');
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
