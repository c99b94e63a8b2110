// The page of skein: a box to ask the index, and its answers. What is asked is in the address
// of the page, as ?q=: an expression, an account, a post, a list, or rank(…). It speaks to the
// server that it comes from; to public.api.bsky.app only where the viewer has allowed it.
// complete.js completes what is typed, live.js shows what the index is doing.
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

// ---- asking ----

class Refused extends Error {
  constructor(name, message) { super(message); this.name = name; }
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

function curlLine(method, params) {
  const quoted = s => "'" + s.replaceAll("'", "'\\''") + "'";
  const line = 'curl -G ' + quoted(location.origin + '/xrpc/' + method) + Object.entries(params).map(([k, v]) => ' \\\n  --data-urlencode ' + quoted(k + '=' + v)).join('');
  const copy = el('button', {type: 'button', class: 'plain', onclick: async () => {
    try { await navigator.clipboard.writeText(line); copy.textContent = 'copied'; } catch { getSelection().selectAllChildren(pre); }
  }}, 'copy');
  const pre = el('pre', {tabindex: '0', 'aria-label': 'The same with curl'}, line);
  return el('div', {class: 'curl'}, pre, copy);
}

// link leads to a state of this page.
const link = (params, ...children) => el('a', {href: '/?' + new URLSearchParams(params), 'data-link': true}, ...children);

// clean takes away the invisible marks that come with what is copied from a page.
const clean = text => text.replace(/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, '').trim();

// A subject is what somebody pastes: an account, a post, a list, or another record.
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
  if (!m && /^\s*rank\s*\(/.test(text)) throw new Refused('InvalidRequest', 'rank(… must end with )');
  if (!m) return null;
  const params = {};
  let depth = 0, part = '';
  for (const c of m[1] + ',') {
    if (c === ',' && depth === 0) {
      const at = part.indexOf('=');
      if (at < 0) throw new Refused('InvalidRequest', `${part.trim() || 'nothing'} in rank(…): write name=value`);
      const called = part.slice(0, at).trim();
      if (!rankTakes.includes(called)) throw new Refused('InvalidRequest', `rank has no ${called}, it has ${rankTakes.join(', ')}`);
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

const rankTakes = ['of', 'via', 'except', 'since', 'until', 'subjectsSince', 'by', 'min', 'limit'];
const rankText = params => 'rank(' + Object.entries(params).map(([k, v]) => k + '=' + v).join(', ') + ')';

let pending = null, watching = null; // what is being asked, and watched
let shown = null; // the state that is there

// show shows the state that the address of the page names.
async function show() {
  if (pending) pending.abort();
  if (watching) watching.close();
  watching = null;
  pending = new AbortController();
  const signal = pending.signal;
  const p = new URLSearchParams(location.search);
  const q = p.get('q') || '', out = $('out');
  if (shown !== location.search) {
    if (shown !== null || q) $('q').value = q; // what was typed while the page loaded stays
    shown = location.search;
  }
  out.setAttribute('aria-busy', 'true'); // what is there is the answer to something else
  document.title = q ? q + ' – skein' : 'skein';
  $('now').open = !q;
  try {
    if (!q) return welcome(out, signal);
    const s = subjectOf(q), rank = rankOf(q), cursor = p.get('cursor'), page = Number(p.get('page') || 1);
    if (rank) await showRank(out, q, rank, cursor, page, signal);
    else if (s) await showSubject(out, s, signal);
    else await showSet(out, q, cursor, page, signal);
    say(out.querySelector('.facts'));
  } catch (e) {
    if (e.name !== 'AbortError') showError(out, q, e);
  } finally {
    if (!signal.aborted) out.removeAttribute('aria-busy');
  }
}

// say has a screen reader say what is there now.
const say = element => { $('said').textContent = element ? element.textContent : ''; };

function go(q) { return visit('/' + (q ? '?' + new URLSearchParams({q}) : '')); }

// visit shows another state of this page, from its beginning. How far this one was scrolled is
// kept, for the way back.
async function visit(address) {
  history.replaceState({y: scrollY}, '');
  history.pushState(null, '', address);
  await show();
  scrollTo(0, 0);
}

// atAnswer moves the focus to the answer: else a screen reader would begin the page anew.
function atAnswer() {
  const heading = $('out').querySelector('h2');
  if (heading) heading.focus({preventScroll: true});
}

let indexing; // whether this server indexes; live.js hears it

// What the server proposes to ask, whether it finds handles, and knows who people are.
let config = {handles: false, people: false, examples: []};

function welcome(out, signal) {
  let examples = config.examples;
  if (!examples.length && config.handles) {
    examples = [{title: 'Who follows both of two accounts?', q: 'intersect(followers(@atproto.com), followers(@bsky.app))'}, {title: 'What has an account liked this week?', q: 'likes(@bsky.app, since=7d)'},
      {title: 'What do the people that an account follows like today?', q: 'rank(of=follows(@bsky.app), via=likes, since=24h)'}, {title: 'An account', q: '@bsky.app'}];
  }
  const facts = examples.map(e => el('small', {}, subjectOf(e.q) || rankOf(e.q) ? '' : '…'));
  out.replaceChildren(examples.length ? el('ul', {class: 'cards'}, ...examples.map((e, i) => el('li', {}, link({q: e.q}, el('b', {}, e.title), el('code', {}, e.q), facts[i])))) : el('p', {class: 'facts'}, 'Give a DID, or an expression.'));
  examples.forEach(async (e, i) => {
    if (!facts[i].textContent) return;
    try {
      const {answer, took} = await ask('blue.skein.graph.query', {set: e.q, count: 'true'}, signal);
      facts[i].textContent = counted(answer.total, answer.type === 'did' ? 'account' : 'record') + ' · ' + took;
    } catch { facts[i].textContent = ''; }
  });
}

async function learnConfig() {
  try { config = await (await fetch('/page/config.json')).json(); } catch { /* the page goes on without */ }
  $('names').parentElement.hidden = config.people;
  if (!config.handles) {
    $('q').placeholder = 'intersect(followers(did:plc:…), followers(did:plc:…))';
    $('label').textContent = 'An expression, a DID, or the address of a post';
  }
  return config.examples.length;
}

// What a demo has to propose is known once its network is there.
async function lookForExamples() {
  if (!config.examples.length && config.people && !location.search && await learnConfig() && !location.search) welcome($('out'), pending.signal);
}

const plain = message => (message || '').replace(/^[a-z]+: at position \d+: /i, '');

function showError(out, q, e) {
  const at = /^([a-z]+): at position (\d+)/i.exec(e.message || '');
  let expression = q;
  try { expression = at && rankOf(q) ? rankOf(q)[at[1]] : q; } catch { /* it is no ranking */ }
  const box = el('div', {class: 'error', role: 'alert'}, el('b', {}, e.name === 'InvalidRequest' ? 'That cannot be asked: ' : e.name + ': '), at ? plain(e.message) : e.message || String(e));
  if (at && expression && !subjectOf(q)) { // in bytes
    const before = new TextDecoder().decode(new TextEncoder().encode(expression).slice(0, Number(at[2])));
    box.append(el('pre', {tabindex: '0', 'aria-label': 'The place of the error'}, expression + '\n' + ' '.repeat([...before].length) + '^'));
    if ($('q').value === expression) $('q').setSelectionRange(before.length, before.length);
  }
  out.replaceChildren(box);
  const place = box.querySelector('pre');
  if (place) place.scrollLeft = place.scrollWidth * Number(at[2]) / Math.max(1, expression.length) - place.clientWidth / 2;
}

// ---- answers ----

const isSet = q => /^\s*[A-Za-z][A-Za-z0-9_]*\s*\(/.test(q);
const isOne = q => isSet(q) && !/^\s*(members|intersect|union|except)\s*\(/.test(q);
const incomplete = answer => answer.incomplete ? el('p', {class: 'warn'}, 'This may not be complete: ' + answer.reason + '.') : '';
const title = (...children) => el('h2', {tabindex: '-1'}, ...children);

// showSet shows a page of a set: where it is one set, with the times of its records.
async function showSet(out, q, cursor, page, signal) {
  if (!isSet(q) && /^[a-z0-9_]+$/i.test(q)) throw new Refused('InvalidRequest', `${q} is neither a handle with a domain, such as alice.example.com, nor an expression, such as followers(@alice.example.com)`);
  const method = isOne(q) ? 'blue.skein.graph.list' : 'blue.skein.graph.query';
  const params = {set: q, limit: '50'};
  if (cursor) params.cursor = cursor;
  const {answer, took} = await ask(method, params, signal);
  const items = answer.items || answer.members.map(m => ({member: m}));
  const facts = [counted(answer.total, answer.type === 'did' ? 'account' : 'record')];
  if (page > 1) facts.push('page ' + page);
  if (answer.order === 'newest') facts.push('the newest first');
  facts.push(took);
  const named = [...new Set(q.match(/did:[a-z]+:[A-Za-z0-9._:-]+/g) || [])].slice(0, 4);
  out.replaceChildren(title(el('code', {}, q)), config.people || $('names').checked ? el('p', {class: 'about'}, ...named.map(d => tag(d))) : '', el('p', {class: 'facts'}, facts.join(' · ')), incomplete(answer),
    items.length ? list(items, i => [i.time && el('time', {datetime: i.time, class: 'more'}, new Date(i.time).toLocaleString())]) : el('p', {}, (answer.type === 'did' ? 'Nobody' : 'Nothing') + ', as far as the index knows. If you did not expect that, look whether the names are right.'),
    nextPage(q, answer, page), refine(q, answer.type), changes(q), curlLine(method, params));
  nameThem(out, signal);
}

const nextPage = (q, answer, page) => answer.cursor ? el('p', {}, link({q, cursor: answer.cursor, page: String(page + 1)}, 'The next page')) : '';

// refine asks which of the members of a set are in another set, too: that is what sets are for.
function refine(q, type) {
  const ways = type === 'did' ? {
    'follow the account': ['account', x => `intersect(${q}, followers(${x}))`], 'are followed by the account': ['account', x => `intersect(${q}, follows(${x}))`],
    'are not followed by the account': ['account', x => `except(${q}, follows(${x}))`], 'liked the post': ['post', x => `intersect(${q}, likers(${x}))`],
    'are on the list': ['list', x => `intersect(${q}, listed(${x}))`], 'are not on the list': ['list', x => `except(${q}, listed(${x}))`],
    'block the account': ['account', x => `intersect(${q}, blockers(${x}))`],
  } : /^\s*list(s|blocks)\s*\(/.test(q) ? {
    'are blocked by the account': ['account', x => `intersect(${q}, listblocks(${x}))`], 'are not blocked by the account': ['account', x => `except(${q}, listblocks(${x}))`],
  } : {
    'are liked by the account': ['account', x => `intersect(${q}, likes(${x}))`], 'are not liked by the account': ['account', x => `except(${q}, likes(${x}))`],
    'are reposted by the account': ['account', x => `intersect(${q}, reposts(${x}))`],
  };
  const way = el('select', {id: 'way', onchange: () => $('whom').setCustomValidity('')}, ...Object.keys(ways).map(w => el('option', {}, w)));
  return subjectForm(el('label', {for: 'way'}, 'Which of these…'), way, 'Account, post or list', () => ways[way.value][0], x => ways[way.value][1](x));
}

// subjectForm asks for a subject, and goes to what make makes of it.
function subjectForm(label, before, what, kind, make) {
  const input = el('input', {id: 'whom', required: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: config.handles ? '@alice.example.com' : 'did:plc:…', 'aria-label': what, oninput: () => input.setCustomValidity('')});
  return el('form', {class: 'follow', onsubmit: e => {
    e.preventDefault();
    const x = subjectOf(clean(input.value)), wanted = kind();
    if (x && x.kind === wanted) return go(make(x.name)).then(atAnswer);
    input.setCustomValidity(wanted === 'account' ? `An account is needed here: ${config.handles ? 'a handle such as @alice.example.com, ' : ''}a DID, or its address at bsky.app` : `A ${wanted} is needed here: its AT URI, or its address at bsky.app`);
    input.reportValidity();
  }}, label, before, input, el('button', {}, 'Ask'));
}

// changes tells who enters and leaves a set from now on, over a websocket: a browser has few
// other connections.
function changes(q) {
  if (indexing === false) return ''; // it hears of none
  const list = el('ol', {class: 'members', role: 'log', 'aria-label': 'Changes', hidden: true}), note = el('p', {class: 'facts', role: 'status'});
  const what = 'Watch who enters and leaves';
  let cursor = '', wait = 500, told = false;
  const stop = said => {
    if (watching) watching.close();
    watching = null;
    button.textContent = what;
    note.textContent = said;
  };
  const connect = () => {
    const w = new WebSocket(location.origin.replace(/^http/, 'ws') + '/xrpc/blue.skein.graph.subscribe?' + new URLSearchParams(cursor ? {set: q, cursor} : {set: q}));
    const mine = watching = {close: () => { w.onclose = null; w.close(); }};
    w.onmessage = e => {
      const m = JSON.parse(e.data);
      if (m.error) return;
      cursor = m.cursor || cursor;
      wait = 500;
      if (m.reset && told) list.prepend(el('li', {}, 'Changes may be missing here.'));
      told = true;
      for (const [way, members] of [['entered', m.entered], ['left', m.left]]) {
        for (const member of members || []) list.prepend(row(member, el('span', {class: 'more'}, way + ', ' + new Date().toLocaleTimeString())));
      }
      while (list.childElementCount > 100) list.lastChild.remove();
      list.hidden = !list.childElementCount;
      note.textContent = list.hidden ? 'Watching: nothing has changed yet.' : 'Watching.';
      nameThem(list, pending.signal);
    };
    w.onclose = async () => {
      if (!told) { // it may be refused: why, the other way of asking says
        const response = await fetch('/xrpc/blue.skein.graph.subscribe?' + new URLSearchParams({set: q})).catch(() => null);
        if (watching !== mine) return response && response.body && response.body.cancel();
        if (response && !response.ok) return stop('This cannot be watched: ' + plain((await response.json().catch(() => ({}))).message) + '.');
        if (response && response.body) response.body.cancel();
      }
      note.textContent = 'The connection is lost, and tried again…';
      setTimeout(() => { if (watching === mine) connect(); }, wait);
      wait = Math.min(2 * wait, 30_000);
    };
  };
  const button = el('button', {type: 'button', class: 'plain', onclick: () => {
    if (watching) return stop('');
    button.textContent = 'Stop watching';
    note.textContent = 'Watching…';
    connect();
  }}, what);
  return el('div', {}, el('p', {}, button), note, list);
}

// What a ranking says: of all, and of one.
const led = {likes: ['What is liked by ', 'liked by '], reposts: ['What is reposted by ', 'reposted by '], follows: ['Who is followed by ', 'followed by '], blocks: ['Who is blocked by ', 'blocked by '],
  followers: ['Who follows ', 'follows '], blockers: ['Who blocks ', 'blocks '], listblocks: ['Which lists are blocked by ', 'blocked by ']};

function rankTitle(p) {
  const of = p.of || '', m = /^(follows|followers)\(([^(),]+)\)$/.exec(of);
  const whom = !m ? 'the members of ' + of : m[1] === 'follows' ? 'those that ' + m[2] + ' follows' : 'those who follow ' + m[2];
  const when = (p.since ? (/^\d+[a-z]+$/.test(p.since) ? ', in the last ' : ', since ') + p.since : '') + (p.until ? ', until ' + p.until : '');
  return (led[p.via] ? led[p.via][0] : p.via + ' of ') + whom + when + (p.by === 'lift' || p.by === 'share' ? ', more than by everybody' : '');
}

async function showRank(out, q, given, cursor, page, signal) {
  const params = {limit: '50', ...given};
  if (cursor) params.cursor = cursor;
  const {answer, took} = await ask('blue.skein.graph.rank', params, signal);
  const part = i => params.by === 'lift' ? `, ${(i.lift / 1e6).toFixed(1)} times as many as by chance` : params.by === 'share' ? `, ${(i.share / 1e4).toFixed(1)} % of its ` + number.format(i.total) : '';
  out.replaceChildren(title(rankTitle(params)), el('p', {class: 'facts'}, (page > 1 ? 'page ' + page : (answer.cursor ? 'the first ' : '') + counted(answer.items.length, 'result')) + ' · ' + took), incomplete(answer),
    answer.items.length ? list(answer.items, i => [el('span', {class: 'more'}, (led[params.via] ? led[params.via][1] : '') + number.format(i.count) + (answer.of ? ' of ' + number.format(answer.of) : '') + part(i))]) : el('p', {}, 'Nothing, as far as the index knows.'),
    nextPage(q, answer, page), curlLine('blue.skein.graph.rank', params));
  nameThem(out, signal);
}

// tag is a member in a line of text.
const tag = member => el('span', {class: 'tag', 'data-member': member}, el('span', {class: 'who'}, link({q: member}, el('span', {class: 'it'}, member))));

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

// ---- one account, post or list ----

async function showSubject(out, s, signal) {
  const x = s.name;
  if (x.startsWith('@') && !x.includes('.')) throw new Refused('InvalidRequest', `${x} is no handle: those have a domain, such as ${x}.bsky.social`);
  let cards, form = '';
  if (s.kind === 'account') {
    cards = [['Followers', `followers(${x})`], ['Follows', `follows(${x})`], ['Mutual', `intersect(follows(${x}), followers(${x}))`],
      ['Liked in the last week', `likes(${x}, since=7d)`], ['New followers this week', `followers(${x}, since=7d)`], ['On the lists', `lists(${x})`], ['Blocks', `blocks(${x})`], ['Blocked by', `blockers(${x})`],
      ['What its follows like', rankText({of: `follows(${x})`, via: 'likes', since: '24h'}), 'in the last 24 hours'],
      ['Similar accounts', rankText({of: `followers(${x})`, via: 'follows', by: 'lift', except: `members(${x})`}), 'followed by its followers, more than by everybody']];
  } else if (s.kind === 'list') {
    cards = [['On the list', `listed(${x})`], ['Who blocks it', `listblockers(${x})`]];
    form = subjectForm(el('label', {for: 'whom'}, 'Who of the list’s members follow this account?'), '', 'Account', () => 'account', a => `intersect(listed(${x}), followers(${a}))`);
  } else {
    cards = [['Likers', `likers(${x})`], ['Reposters', `reposters(${x})`]];
    for (const k of kinds) {
      if (k.names === 'uri' && k.reverse && !['likers', 'reposters', 'listblockers'].includes(k.reverse)) cards.push([k.reverse, `${k.reverse}(${x})`]);
    }
    form = subjectForm(el('label', {for: 'whom'}, 'Who of those that this account follows liked it?'), '', 'Account', () => 'account', a => `intersect(follows(${a}), likers(${x}))`);
  }
  const counts = cards.map(([, , note]) => el('small', {}, note || '…'));
  const about = el('p', {class: 'facts'}, ' '), warning = el('p', {class: 'warn', hidden: true});
  if (s.owner) about.replaceChildren('By ', tag(s.owner));
  const heading = title(el('span', {class: 'who'}, el('span', {class: 'it'}, x)), ' ', atBluesky(s.kind === 'account' ? 'https://bsky.app/profile/' + x.replace(/^@/, '') : x.startsWith('at:') ? outside(x) : x, x));
  heading.classList.add('subject');
  heading.dataset.member = x;
  out.replaceChildren(heading, about, warning, el('ul', {class: 'cards'}, ...cards.map(([called, q], i) => el('li', {}, link({q}, el('b', {}, called), counts[i])))), form);
  nameThem(out, signal);
  if (x.startsWith('https:')) { // what its AT URI is, only the server knows
    ask('blue.skein.graph.query', {set: `members(${x})`}, signal).then(({answer}) => {
      heading.dataset.member = answer.members[0];
      about.replaceChildren('By ', tag(ownerOf(answer.members[0])));
      nameThem(out, signal);
    }).catch(() => { /* the cards say what is wrong */ });
  }
  const failed = await Promise.all(cards.map(async ([, q, note], i) => {
    if (note) return null;
    try {
      const {answer} = await ask('blue.skein.graph.query', {set: q, count: 'true'}, signal);
      counts[i].textContent = (answer.incomplete ? 'at least ' : '') + number.format(answer.total);
      if (answer.incomplete && warning.hidden) {
        warning.textContent = 'This may not be complete: ' + answer.reason + '.';
        warning.hidden = false;
      }
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      counts[i].textContent = '–';
      return e;
    }
  }));
  const errors = failed.filter(Boolean);
  if (errors.length && errors.length === cards.filter(c => !c[2]).length) throw new Refused(errors[0].name, plain(errors[0].message)); // of the name, then
  if (s.kind === 'account') {
    const {answer} = await ask('blue.skein.graph.getAccount', {did: x}, signal);
    about.textContent = (x === answer.did ? '' : answer.did + ' · ') + answer.description;
    if (x.startsWith('@')) handles.set(answer.did, x);
  }
}

// ---- who accounts are and what posts say, if the viewer allows it ----

// What is known of them: profiles by DID and by handle, null for those that there are none of.
const profiles = new Map(), texts = new Map(), handles = new Map();
const isPost = member => /^at:\/\/[^/]+\/app\.bsky\.feed\.post\//.test(member);
const ownerOf = member => member.replace(/^(at:\/\/|@)/, '').split('/')[0];

function keepProfile(p) {
  profiles.set(p.did, p);
  profiles.set(p.handle, p);
}

// nameThem says who the members are that are shown.
async function nameThem(out, signal) {
  const shown = [...out.querySelectorAll('[data-member]')], allowed = config.people || $('names').checked;
  const paint = () => shown.forEach(e => describe(e, allowed));
  paint();
  if (!allowed) return;
  const service = config.people ? '/xrpc/' : 'https://public.api.bsky.app/xrpc/', members = shown.map(e => e.dataset.member);
  const learnOf = async (method, parameter, wanted, known, keep) => {
    const unknown = [...new Set(wanted)].filter(x => !known.has(x));
    for (let i = 0; i < unknown.length; i += 25) {
      const some = unknown.slice(i, i + 25);
      const response = await fetch(service + method + '?' + some.map(x => parameter + '=' + encodeURIComponent(x)).join('&'), {signal, referrerPolicy: 'no-referrer'});
      if (!response.ok) return;
      keep(await response.json());
      for (const x of some) if (!known.has(x)) known.set(x, null);
      paint();
    }
  };
  try {
    await learnOf('app.bsky.feed.getPosts', 'uris', members.filter(isPost), texts, a => { for (const p of a.posts) { texts.set(p.uri, p.record.text || ''); keepProfile(p.author); } });
    await learnOf('app.bsky.actor.getProfiles', 'actors', members.map(ownerOf), profiles, a => a.profiles.forEach(keepProfile));
    $('names-failed').hidden = true;
  } catch (e) {
    $('names-failed').hidden = e.name === 'AbortError' || config.people;
  }
}

// describe says of one element who it is about.
function describe(e, allowed) {
  const member = e.dataset.member, p = allowed ? profiles.get(ownerOf(member)) : null, words = allowed && texts.get(member), who = e.querySelector('.who');
  if (!p) {
    if (handles.has(member)) who.querySelector('.it').textContent = handles.get(member);
    return;
  }
  if (e.dataset.named === 'all' || e.dataset.named === 'owner' && !words) return;
  if (!e.dataset.named) {
    who.prepend(el('b', {}, p.displayName || p.handle), ' ');
    if (p.avatar && (config.people ? p.avatar.startsWith('/') : p.avatar.startsWith('https://cdn.bsky.app/'))) e.prepend(el('img', {src: p.avatar, alt: '', loading: 'lazy', referrerpolicy: 'no-referrer'}));
  }
  const it = who.querySelector('.it');
  it.title = member;
  if (!member.startsWith('at:')) it.textContent = '@' + p.handle;
  else if (words) { it.textContent = words; it.classList.add('words'); }
  e.dataset.named = words || !isPost(member) ? 'all' : 'owner';
}
