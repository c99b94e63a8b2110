// Two parts of check.mjs: the previews of feeds, and the graphs.

// feeds checks the previews of feeds for any viewer.
export async function feeds({page, base, shots, account, follows, records, hidden, expect, until, axe, facts, action, lines}) {
  await page.goto(base + '/');
  await page.waitForSelector('#out section a');
  expect(await page.textContent('#out section') === 'Preview a feedminelikes($viewer)depends on the viewerfriendsrank(of=follows($viewer), via=likes)depends on the viewerall' + `likes(${account})`, 'the page proposes the feeds: ' + await page.textContent('#out section'));
  await axe('the feeds');
  await page.click('#out section a:has(b:text-is("friends"))');
  await page.waitForSelector('#whom');
  expect(await page.$('#out .members') === null, 'a feed for a viewer asks for the viewer');
  await page.fill('#whom', account);
  await page.click('.follow button');
  await page.waitForSelector('#out .members li');
  const likedPosts = new Set(records.filter(r => r.collection === 'app.bsky.feed.like' && follows.has(r.did) && !hidden(r.did) && /\/app\.bsky\.feed\.post\//.test(r.subject)).map(r => r.subject));
  await action('Copy all');
  await until(() => /^Copied/.test(document.querySelector('#out [role=status]').textContent));
  const feed = lines(await page.evaluate(() => navigator.clipboard.readText()));
  expect(feed.length === likedPosts.size && feed.every(p => likedPosts.has(p)), `the feed has ${feed.length} posts, want ${likedPosts.size}`);
  expect(new URL(page.url()).searchParams.get('viewer') === account && await page.inputValue('#whom') === account, 'the page’s address leads to the preview');
  await page.screenshot({path: shots + '/feed.png'});
  await axe('a feed');
  await page.goto(base + '/?feed=all');
  await page.waitForSelector('#out .members li');
  expect(await page.$('#whom') === null, 'a feed without a viewer asks for none: ' + await facts());
  await page.goto(base + '/?feed=none');
  await page.waitForSelector('#out .error');
  expect(/no feed none to preview/.test(await page.textContent('#out .error')), 'an unknown feed');
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
