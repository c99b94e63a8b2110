// The page of a feed: its line, the feed as a viewer sees it, and the record that publishes it.
'use strict';

// isLine reports whether a text is the line of a feed: NAME = QUERY.
const isLine = text => /^[\w.~:-]+\s*=/.test(text);

const nameOf = line => line.split('=')[0].trim();

// hasViewer reports whether a feed depends on who sees it.
const hasViewer = line => /\$viewer|,\s*seen\s*=/.test(line);

let seenBy = ''; // the last viewer

// feedState is the state of the page that shows a feed, at first as an account of the examples sees it.
const feedState = line => ({feed: line, ...hasViewer(line) && {viewer: seenBy || me.get() || example(/follows\(([^(),]+)\)/)}});

// example returns what the examples have at a place.
const example = pattern => (pattern.exec(config.examples.map(e => e.q).join('\n')) || ['', ''])[1];

// lacking says how to index the sets that a server may lack.
const lacking = {posts: 'skein serve --posts', tagged: 'skein serve --kinds FILE, with the lines “app.bsky.feed.post self at-uri posts” and “app.bsky.feed.post facets[].features[app.bsky.richtext.facet#tag].tag text tags taggers tagged”'};

// templates proposes the feeds that are asked for most. It says what a feed needs that the server does not index.
function templates() {
  const list = example(/(at:\/\/[^\s(),]+\.graph\.list\/[^\s(),]+)/) || 'https://bsky.app/profile/…/lists/…';
  const all = [
    ['Liked by those you follow', 'friends = rank(of=follows($viewer), via=likes, since=24h, except=likes($viewer)), each=2'],
    ['For You', 'for-you = rank(of=rank(of=likes($viewer, since=30d), via=likers, damp=0.5, top=300, except=members($viewer)), via=likes, since=24h, weigh=score, damp=0.3, decay=6h, except=likes($viewer))'],
    ['Posts of a list', `list = union(rank(of=listed(${list}), via=posts, since=7d)), without=replies`],
    ['Posts with a tag', 'cats = union(tagged("cats", since=7d), tagged("Cats", since=7d))'],
    ['Posts of accounts you followed lately', 'new = union(rank(of=follows($viewer, since=30d), via=posts, since=7d)), without=replies, each=2']];
  return el('section', {}, el('h3', {}, 'Write a feed'), el('p', {class: 'facts'}, 'Paste the line of a feed into the box above, or start from one of these:'), el('ul', {class: 'cards'}, ...all.map(([titled, line]) => {
    const needs = Object.keys(lacking).find(s => line.includes(s) && !setOf(s).name);
    return needs ? el('li', {}, el('div', {}, el('b', {}, titled), el('code', {}, line), el('small', {}, `This server does not index ${needs}(…): ${lacking[needs]}`))) : card(feedState(line), titled, line, el('small', {}, hasViewer(line) ? 'depends on the viewer' : ''));
  })));
}

// showFeed shows a form for a feed, and a page of it as a viewer sees it.
async function showFeed(out, line, viewer, paged, signal) {
  const text = el('textarea', {rows: '3', spellcheck: 'false', autocapitalize: 'off', 'aria-label': 'The line of the feed', onkeydown: e => {
    if (e.key !== 'Enter' || e.shiftKey) return;
    e.preventDefault();
    form.requestSubmit();
  }});
  const form = subjectForm('Show the feed as seen by', '', () => hasViewer(text.value) ? 'account' : '', x => ({feed: clean(text.value), ...x && {viewer: x}}), viewer), below = el('div');
  text.value = line;
  seenBy = viewer || seenBy;
  out.replaceChildren(title('Feed ' + nameOf(line)), text, form, below);
  if (hasViewer(line) && !viewer) return;
  const method = 'app.bsky.feed.getFeedSkeleton', params = {line, limit: '50', ...viewer && {viewer}};
  try {
    const {answer, took} = await ask(method, {...params, ...paged.cursor}, signal);
    const items = answer.feed.map(i => ({member: i.post}));
    below.append(facts(howMany(paged, answer, items, 'post'), took, textsOff()), actions({method, params, most: 100, panels: {Publish: publish(line)}}), ...members({feed: line, ...viewer && {viewer}}, paged, answer, items, () => []));
  } catch (e) {
    if (aborted(e)) throw e;
    e.message = e.message.replace(/^line: (feed \S+: )?(InvalidRequest: )?/, '');
    showError(below, line, e, text, line => ({feed: line, ...viewer && {viewer}}));
  }
  nameThem(out, signal);
}

// textsOff returns a button that shows texts of posts, unless they are shown or cannot be.
const textsOff = () => config.public && !$('names').checked && action('Show the texts', () => $('names').click());

// publish says how to publish a feed.
function publish(line) {
  const known = config.service && !config.service.includes('localhost'), name = nameOf(line);
  const record = {$type: 'app.bsky.feed.generator', did: known ? config.service : 'did:web:YOUR.HOST', displayName: name.slice(0, 24), ...line.includes('seen=') && {acceptsInteractions: true}, createdAt: new Date().toISOString()};
  return el('div', {}, el('p', {class: 'facts'}, 'Add the line to the file of ', el('code', {}, 'skein serve --feeds'), known ? '' : ' of a server with a public name (--service-host)', '. Then create this record, with com.atproto.repo.putRecord, in the account that --feed-publisher names:'),
    copied('The record of the feed', JSON.stringify({repo: 'YOUR.HANDLE', collection: record.$type, rkey: name, record}, null, 2)));
}
