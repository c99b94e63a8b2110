// The page of skein: a box to ask the index, and its answers. The address of the page says what
// is asked: ?q= an expression, an account, a post, a list, or rank(…); ?feed= a feed's preview.
'use strict';

const $ = id => document.getElementById(id);

// el makes an element: el('a', {href: '/'}, 'text', child, …).
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

const number = new Intl.NumberFormat();
const counted = (n, one, many) => number.format(n) + ' ' + (n === 1 ? one : many || one + 's');

// mend, if it is given, corrects what was asked.
class Refused extends Error {
  constructor(name, message, mend) { super(message); this.name = name; this.mend = mend; }
}

// ask calls a method, and says how long that took: the server, if it tells.
async function ask(method, params, signal) {
  const path = '/xrpc/' + method + '?' + new URLSearchParams(params);
  const began = performance.now();
  let answer, response;
  try {
    response = await fetch(path, {signal});
    answer = await response.json();
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused('Unreachable', response ? 'the answer cannot be read' : 'the server does not answer');
  }
  if (!response.ok) throw new Refused(answer.error, answer.message);
  const told = /dur=([\d.]+)/.exec(response.headers.get('Server-Timing') || '');
  const ms = told ? Number(told[1]) : performance.now() - began;
  return {answer, took: ms.toFixed(ms < 10 ? 1 : 0) + ' ms'};
}

// link leads to a state of this page.
const link = (params, ...children) => el('a', {href: '/?' + new URLSearchParams(params), 'data-link': true}, ...children);

// clean takes away the invisible marks that come with what is copied from a page.
const clean = text => text.replace(/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, '').trim();

// A subject is what somebody pastes: an account, a list, a post or another record.
function subjectOf(text) {
  if (/[\s(),]/.test(text)) return null;
  let m;
  if (/^(at:\/\/)?did:[a-z]+:[^/]+$/.test(text)) return {kind: 'account', name: text.replace('at://', '')};
  if ((m = /^at:\/\/([^/]+)$/.exec(text))) return {kind: 'account', name: '@' + m[1]};
  if (text.startsWith('@')) return {kind: 'account', name: text};
  if ((m = /^(?:https?:\/\/)?bsky\.app\/profile\/([^/?#]+)\/?(?:([a-z]+)\/([^/?#]+))?/.exec(text))) {
    const address = 'https://bsky.app/profile/' + m[1] + (m[2] ? '/' + m[2] + '/' + m[3] : '');
    if (!m[2]) return {kind: 'account', name: m[1].startsWith('did:') ? m[1] : '@' + m[1]};
    return {kind: m[2] === 'lists' ? 'list' : 'post', name: address, owner: m[1].startsWith('did:') ? m[1] : '@' + m[1]};
  }
  if ((m = /^at:\/\/([^/]+)\/([^/]+)/.exec(text))) return {kind: m[2] === 'app.bsky.graph.list' ? 'list' : 'post', name: text, owner: m[1]};
  if (/^[a-z0-9-]+(\.[a-z0-9-]+)+$/i.test(text)) return {kind: 'account', name: '@' + text};
  return null;
}

// rankOf reads rank(of=…, via=…, …), as the file of feeds has it; null for what is none.
function rankOf(text) {
  const m = /^\s*rank\s*\(([\s\S]*)\)\s*$/.exec(text);
  if (!m && /^\s*rank\s*\(/.test(text)) throw new Refused('InvalidRequest', 'rank(… must end with )', closed);
  if (!m) return null;
  const params = {};
  let depth = 0, part = '';
  for (const c of m[1] + ',') {
    if (c === ',' && depth === 0) {
      const at = part.indexOf('=');
      if (at < 0) throw new Refused('InvalidRequest', `${part.trim() || 'nothing'} in rank(…): write name=value`);
      const called = part.slice(0, at).trim();
      if (rankTakes && !rankTakes.includes(called)) throw new Refused('InvalidRequest', `rank has no ${called}, it has ${rankTakes.join(', ')}`, q => q.replace(new RegExp('\\b' + called + '(?=\\s*=)'), nearest(called, rankTakes) || called));
      if (called in params) throw new Refused('InvalidRequest', called + ' is given twice');
      params[called] = part.slice(at + 1).trim();
      part = '';
      continue;
    }
    depth += c === '(' ? 1 : c === ')' ? -1 : 0;
    part += c;
  }
  return params;
}

let rankTakes = null; // its parameters, once the server has told them

async function learnRank() {
  try {
    rankTakes ||= Object.keys((await (await fetch('/lexicons/blue.skein.graph.rank.json')).json()).defs.main.parameters.properties).filter(p => p !== 'cursor');
  } catch { /* the server refuses what is wrong */ }
}

const rankText = params => 'rank(' + Object.entries(params).map(([k, v]) => k + '=' + v).join(', ') + ')';

let pending = null, watching = null; // what is being asked, and watched
let shown = null; // the state that is there

async function show() {
  if (pending) pending.abort();
  if (watching) watching.close();
  watching = null;
  pending = new AbortController();
  const signal = pending.signal;
  const p = new URLSearchParams(location.search);
  const q = p.get('q') || '', feed = p.get('feed'), out = $('out');
  if (shown !== location.search) {
    if (shown !== null || q) $('q').value = q; // what was typed while the page loaded stays
    shown = location.search;
  }
  out.setAttribute('aria-busy', 'true'); // what is there is the answer to something else
  const called = feed ? 'feed ' + feed : q;
  document.title = called ? called + ' – skein' : 'skein';
  $('now').open = !called;
  try {
    if (!called) return welcome(out, signal);
    if (/^\s*rank\s*\(/.test(q)) await learnRank();
    const s = subjectOf(q), rank = rankOf(q), cursor = p.get('cursor'), paged = {cursor: cursor ? {cursor} : {}, page: Number(p.get('page') || 1)};
    if (feed) await showFeed(out, feed, p.get('viewer'), paged, signal);
    else if (rank) await showRank(out, q, rank, paged, signal);
    else if (s) await showSubject(out, s, signal);
    else await showSet(out, q, paged, signal);
    say(out.querySelector('.facts'));
  } catch (e) {
    if (e.name !== 'AbortError') showError(out, q, e);
  } finally {
    if (!signal.aborted) out.removeAttribute('aria-busy');
  }
}

// say tells a screen reader.
const say = element => { $('said').textContent = element ? element.textContent : ''; };

// go asks for what params say.
function go(params) { return visit('/' + (params.q === '' ? '' : '?' + new URLSearchParams(params))); }

// visit shows another state of this page, and keeps how far this one was scrolled.
async function visit(address) {
  history.replaceState({y: scrollY}, '');
  history.pushState(null, '', address);
  await show();
  scrollTo(0, 0);
}

// atAnswer moves the focus to the answer, so that a screen reader goes on there.
function atAnswer() {
  const heading = $('out').querySelector('h2');
  if (heading) heading.focus({preventScroll: true});
}

let indexing; // whether this server indexes; live.js hears it

let config = {examples: [], feeds: []};

const card = (params, titled, asks, note) => el('li', {}, link(params, el('b', {}, titled), el('code', {}, ...spell(asks, 'span')), note));

function welcome(out, signal) {
  const notes = config.examples.map(e => el('small', {}, /^(rank|@|did:|at:)/.test(e.q) ? '' : '…'));
  out.replaceChildren(config.examples.length ? el('ul', {class: 'cards'}, ...config.examples.map((e, i) => card({q: e.q}, e.title, e.q, notes[i]))) : el('p', {class: 'facts'}, 'Give a DID, or an expression.'),
    config.feeds.length ? el('section', {}, el('h3', {}, 'Preview a feed'), el('ul', {class: 'cards'}, ...config.feeds.map(f => card({feed: f.name}, f.name, f.shows, el('small', {}, f.viewer ? 'differs by viewer' : ''))))) : '');
  nameThem(out, signal);
  config.examples.forEach(async (e, i) => {
    if (!notes[i].textContent) return;
    try {
      const {answer, took} = await ask('blue.skein.graph.query', {set: e.q, count: 'true'}, signal);
      notes[i].textContent = counted(answer.total, answer.type === 'did' ? 'account' : 'record') + ' · ' + took;
    } catch { notes[i].textContent = ''; }
  });
}

async function learnConfig() {
  try { config = await (await fetch('/page/config.json')).json(); } catch { /* the page goes on without */ }
  $('names').parentElement.hidden = config.people;
  $('names').checked = keep.get() ?? config.public;
  if (!config.handles) {
    $('q').placeholder = 'intersect(followers(did:plc:…), followers(did:plc:…))';
    $('label').textContent = 'An expression, a DID, or the address of a post';
  }
  return config.examples.length;
}

// What there is to propose is known once there is something in the store.
async function lookForExamples() {
  if (!config.examples.length && !document.hidden && !location.search && await learnConfig() && !location.search) welcome($('out'), pending.signal);
}

const isSet = q => /^\s*[A-Za-z][A-Za-z0-9_]*\s*\(/.test(q);
const isOne = q => isSet(q) && !/^\s*(members|intersect|union|except)\s*\(/.test(q);
const incomplete = answer => answer.incomplete ? el('p', {class: 'warn'}, 'This may not be complete: ' + answer.reason + '.') : '';
const title = (...children) => el('h2', {tabindex: '-1'}, ...children);

// A name in an expression: a handle, a DID, an AT URI, or an address at bsky.app.
const literals = /(@[\w-]+(?:\.[\w-]+)+|did:[a-z]+:[A-Za-z0-9._:%-]+|at:\/\/[^\s(),]+|https:\/\/bsky\.app\/profile\/[^\s(),]+)/;

// spell returns an expression in which each name leads to what it names (names.js names it).
const spell = (text, as = 'a') => text.split(literals).map((part, i) => i % 2 === 0 ? part : el(as, {class: 'lit', 'data-member': part, ...as === 'a' && {href: '/?' + new URLSearchParams({q: part}), 'data-link': true}}, part));

// showSet shows a page of a set: where it is one set, with the times of its records.
async function showSet(out, q, paged, signal) {
  if (!isSet(q) && /^[a-z0-9_-]+$/i.test(q)) throw new Refused('InvalidRequest', `${q} is neither a handle with a domain, such as alice.example.com, nor an expression, such as followers(@alice.example.com)`, config.handles && (() => `@${q}.bsky.social`));
  const method = isOne(q) ? 'blue.skein.graph.list' : 'blue.skein.graph.query', params = {set: q, limit: '50'};
  const {answer, took} = await ask(method, {...params, ...paged.cursor}, signal);
  const items = answer.items || answer.members.map(m => ({member: m})), whose = answer.type === 'did';
  out.replaceChildren(title(el('code', {}, ...spell(q))), facts(counted(answer.total, whose ? 'account' : 'record'), paged.page > 1 && 'page ' + paged.page, answer.order === 'newest' && 'the newest first', took), incomplete(answer),
    actions({method, params, total: answer.total, refine: refine(q, answer.type), watch: q}),
    ...members({q}, paged, answer, items, i => [i.time && el('time', {datetime: i.time, class: 'more'}, new Date(i.time).toLocaleString())]));
  nameThem(out, signal);
}

const facts = (...all) => el('p', {class: 'facts'}, ...all.filter(Boolean).flatMap((f, i) => i ? [' · ', f] : [f]));

// members lists those of a page of an answer, and leads to the next page.
const members = (state, {page}, {cursor, type}, items, more) => [
  items.length ? list(items, more) : el('p', {}, (type === 'did' ? 'Nobody' : 'Nothing') + ', as far as the index knows. Are the names right?'),
  cursor ? el('p', {}, link({...state, cursor, page: String(page + 1)}, 'The next page')) : ''];

const howMany = ({page}, {cursor}, items, one) => page > 1 ? 'page ' + page : (cursor ? 'the first ' : '') + counted(items.length, one);

// showFeed shows a page of a feed, as a viewer would see it.
async function showFeed(out, name, viewer, paged, signal) {
  const f = config.feeds.find(f => f.name === name), state = {feed: name, ...viewer && {viewer}};
  if (!f) throw new Refused('UnknownFeed', `no feed ${name} can be previewed here (skein serve --feeds FILE --feed-preview)`);
  const head = [title('Feed ' + name), el('p', {class: 'asks'}, el('code', {}, ...spell(f.shows))),
    f.viewer ? subjectForm('As this account sees it', '', () => 'account', x => ({feed: name, viewer: x}), viewer) : ''];
  if (f.viewer && !viewer) return out.replaceChildren(...head);
  const method = 'app.bsky.feed.getFeedSkeleton', params = {feed: f.uri, limit: '50', ...viewer && {viewer}};
  const {answer, took} = await ask(method, {...params, ...paged.cursor}, signal);
  const items = answer.feed.map(i => ({member: i.post}));
  out.replaceChildren(...head, facts(howMany(paged, answer, items, 'post'), took), actions({method, params, most: 100}), ...members(state, paged, answer, items, () => []));
  nameThem(out, signal);
}

// What one of a ranking is, by those who are counted.
const deeds = {likes: 'liked by ', reposts: 'reposted by ', follows: 'followed by ', blocks: 'blocked by ', listblocks: 'blocked by ', followers: 'follows ', blockers: 'blocks '};

function rankTitle(p) {
  const of = p.of || '', m = /^follow(s|ers)\(([^(),]+)\)$/.exec(of);
  const whom = !m ? 'the members of ' + of : m[1] === 's' ? `those that ${m[2]} follows` : 'those who follow ' + m[2];
  const when = (p.since ? (/^\d+[a-z]+$/.test(p.since) ? ', in the last ' : ', since ') + p.since : '') + (p.until ? ', until ' + p.until : '');
  const who = {likes: 'What is ', reposts: 'What is ', listblocks: 'Which lists are ', followers: 'Who ', blockers: 'Who '}[p.via] || 'Who is ';
  return (deeds[p.via] ? who + deeds[p.via] : p.via + ' of ') + whom + when + (/lift|share/.test(p.by) ? ', more than by everybody' : '');
}

// opened is the set of those that a count of a ranking counts, where there is one.
function opened(params, member) {
  const k = kinds.find(k => k.forward && (k.forward === params.via || k.reverse === params.via));
  if (!k || !params.of) return null;
  const window = ['since', 'until'].filter(w => params[w]).map(w => `, ${w}=${params[w]}`).join('');
  return `intersect(${params.of}, ${k.forward === params.via ? k.reverse : k.forward}(${member}${window}))`;
}

async function showRank(out, q, given, paged, signal) {
  const method = 'blue.skein.graph.rank', params = {limit: '50', ...given};
  const {answer, took} = await ask(method, {...params, ...paged.cursor}, signal);
  const part = i => i.lift ? `, ${(i.lift / 1e6).toFixed(1)} times as many as by chance` : i.share ? `, ${(i.share / 1e4).toFixed(1)} % of its ` + number.format(i.total) : '';
  const count = i => {
    const text = (deeds[params.via] || '') + number.format(i.count), set = opened(params, i.member);
    return [el('span', {class: 'more'}, set ? link({q: set}, text) : text, part(i))];
  };
  out.replaceChildren(title(...spell(rankTitle(params))), facts(howMany(paged, answer, answer.items, 'result'), link({q: params.of}, 'of ' + (answer.of ? counted(answer.of, 'account') : 'these accounts')), took), incomplete(answer),
    actions({method, params, whole: Boolean(given.limit)}), ...members({q}, paged, answer, answer.items, count));
  nameThem(out, signal);
}

// list lists members, each with what is known of it besides.
const list = (items, more) => el('ol', {class: 'members'}, ...items.map(i => row(i.member, ...more(i).filter(Boolean))));

const row = (member, ...more) => el('li', {'data-member': member},
  el('span', {class: 'who'}, link({q: member}, el('span', {class: 'it'}, member.replace(/^at:\/\//, '')))), ...more, atBluesky(outside(member), member));

// atBluesky leads to a member there, if it is not made up.
const atBluesky = (address, member) => config.people ? '' : el('a', {class: 'away', href: address, rel: 'noreferrer', 'aria-label': 'At bsky.app: ' + member}, '↗');

function outside(member) {
  const m = /^at:\/\/([^/]+)\/([^/]+)\/(.+)$/.exec(member);
  if (!m) return 'https://bsky.app/profile/' + member.replace(/^at:\/\//, '');
  const kind = {'app.bsky.feed.post': 'post', 'app.bsky.graph.list': 'lists', 'app.bsky.feed.generator': 'feed'}[m[2]];
  return 'https://bsky.app/profile/' + m[1] + (kind ? '/' + kind + '/' + m[3] : '');
}

// showSubject shows an account, a post or a list: what can be asked of it.
async function showSubject(out, s, signal) {
  const x = s.name;
  if (x.startsWith('@') && !x.includes('.')) throw new Refused('InvalidRequest', `${x} is no handle: those have a domain, such as ${x}.bsky.social`, () => x + '.bsky.social');
  let cards, form = '';
  if (s.kind === 'account') {
    cards = [['Followers', `followers(${x})`], ['Follows', `follows(${x})`], ['Mutual', `intersect(follows(${x}), followers(${x}))`],
      ['Liked in the last week', `likes(${x}, since=7d)`], ['New followers this week', `followers(${x}, since=7d)`], ['On the lists', `lists(${x})`], ['Blocks', `blocks(${x})`], ['Blocked by', `blockers(${x})`],
      ['What its follows like', rankText({of: `follows(${x})`, via: 'likes', since: '24h'}), 'in the last 24 hours'],
      ['Similar accounts', rankText({of: `followers(${x})`, via: 'follows', by: 'lift', except: `members(${x})`}), 'followed by its followers, more than by everybody']];
  } else if (s.kind === 'list') {
    cards = [['On the list', `listed(${x})`], ['Who blocks it', `listblockers(${x})`]];
    form = subjectForm('Who of the list’s members follow this account?', '', () => 'account', a => ({q: `intersect(listed(${x}), followers(${a}))`}));
  } else {
    cards = [['Likers', `likers(${x})`], ['Reposters', `reposters(${x})`]];
    for (const k of kinds) {
      if (k.names === 'uri' && k.reverse && !['likers', 'reposters', 'listblockers'].includes(k.reverse)) cards.push([k.reverse, `${k.reverse}(${x})`]);
    }
    form = subjectForm('Who of those that this account follows liked it?', '', () => 'account', a => ({q: `intersect(follows(${a}), likers(${x}))`}));
  }
  const counts = cards.map(([, , note]) => el('small', {}, note || '…'));
  const about = el('p', {class: 'facts'}, ' '), warning = el('p', {class: 'warn', hidden: true});
  const by = owner => about.replaceChildren('By ', el('span', {class: 'tag', 'data-member': owner}, el('span', {class: 'who'}, link({q: owner}, el('span', {class: 'it'}, 'its author')))));
  if (s.owner) by(s.owner);
  const heading = title(el('span', {class: 'who'}, el('span', {class: 'it'}, x)), ' ', atBluesky(s.kind === 'account' ? 'https://bsky.app/profile/' + x.replace(/^@/, '') : x.startsWith('at:') ? outside(x) : x, x));
  heading.classList.add('subject');
  heading.dataset.member = x;
  out.replaceChildren(heading, about, warning, el('ul', {class: 'cards'}, ...cards.map(([called, q], i) => el('li', {}, link({q}, el('b', {}, called), counts[i])))), form);
  nameThem(out, signal);
  if (x.startsWith('https:')) { // what its AT URI is, only the server knows
    ask('blue.skein.graph.query', {set: `members(${x})`}, signal).then(({answer}) => {
      heading.dataset.member = answer.members[0];
      by(ownerOf(answer.members[0]));
      nameThem(out, signal);
    }).catch(() => { /* the cards say what is wrong */ });
  }
  const failed = await Promise.all(cards.map(async ([, q, note], i) => {
    if (note) return null;
    // What has nothing in it, or cannot be counted, is nothing to open.
    const close = said => {
      counts[i].textContent = said;
      const a = counts[i].parentElement;
      if (a.href) a.replaceWith(el('div', {}, ...a.childNodes));
    };
    try {
      const {answer} = await ask('blue.skein.graph.query', {set: q, count: 'true'}, signal);
      const total = (answer.incomplete ? 'at least ' : '') + number.format(answer.total);
      if (answer.total) counts[i].textContent = total;
      else close(total);
      if (answer.incomplete && warning.hidden) {
        warning.textContent = 'This may not be complete: ' + answer.reason + '.';
        warning.hidden = false;
      }
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      close(plain(e.message));
      return e;
    }
  }));
  const errors = failed.filter(Boolean);
  if (errors.length && errors.length === cards.filter(c => !c[2]).length) throw new Refused(errors[0].name, plain(errors[0].message)); // of the name, then
  if (s.kind === 'account') {
    const {answer} = await ask('blue.skein.graph.getAccount', {did: x}, signal);
    about.textContent = (heading.querySelector('.it').textContent === answer.did ? '' : answer.did + ' · ') + answer.description;
    if (x.startsWith('@')) handles.set(answer.did, x);
  }
}
