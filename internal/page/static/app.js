// The page of skein: what the index is doing, and a box to ask it. It speaks to the server
// that it comes from; to public.api.bsky.app only where the viewer has allowed it.
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
const rough = new Intl.NumberFormat(undefined, {notation: 'compact', maximumFractionDigits: 1});
const bytes = n => n < 1 ? '–' : ['B', 'KiB', 'MiB', 'GiB', 'TiB'].reduce((s, u, i) => n >= 1024 ** i ? (n / 1024 ** i).toFixed(i && n / 1024 ** i < 10 ? 1 : 0) + ' ' + u : s, '');

// ---- asking ----

class Refused extends Error {
  constructor(name, message) { super(message); this.name = name; }
}

// ask calls a method, and says how long that took.
async function ask(method, params, signal) {
  const path = '/xrpc/' + method + '?' + new URLSearchParams(params);
  const began = performance.now();
  let answer, status;
  try {
    const response = await fetch(path, {signal});
    status = response.status;
    answer = await response.json();
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refused('Unreachable', status ? 'the answer cannot be read' : 'the server does not answer');
  }
  if (status !== 200) throw new Refused(answer.error, answer.message);
  return {answer, took: performance.now() - began};
}

function curl(method, params) {
  const quoted = s => "'" + s.replaceAll("'", "'\\''") + "'";
  return 'curl -G ' + quoted(location.origin + '/xrpc/' + method) + Object.entries(params).map(([k, v]) => ' \\\n  --data-urlencode ' + quoted(k + '=' + v)).join('');
}

function curlLine(method, params) {
  const line = curl(method, params);
  const copy = el('button', {type: 'button', class: 'plain', onclick: async () => {
    try { await navigator.clipboard.writeText(line); copy.textContent = 'copied'; } catch { getSelection().selectAllChildren(pre); }
  }}, 'copy');
  const pre = el('pre', {tabindex: '0', 'aria-label': 'The same with curl'}, line);
  return el('div', {}, pre, copy);
}

// href is the address of a state of this page.
const href = params => '/?' + new URLSearchParams(params);

function link(params, ...children) {
  return el('a', {href: href(params), 'data-link': true}, ...children);
}

// A subject is what somebody pastes: an account, a post, a list, or another record.
function subjectOf(text) {
  if (/[\s(),]/.test(text)) return null;
  let m;
  if (/^did:[a-z]+:/.test(text)) return {kind: 'account', name: text};
  if (text.startsWith('@')) return {kind: 'account', name: text};
  if ((m = /^(?:https:\/\/)?bsky\.app\/profile\/([^/?#]+)\/?(?:([a-z]+)\/([^/?#]+))?/.exec(text))) {
    const address = 'https://bsky.app/profile/' + m[1] + (m[2] ? '/' + m[2] + '/' + m[3] : '');
    if (!m[2]) return {kind: 'account', name: m[1].startsWith('did:') ? m[1] : '@' + m[1]};
    return {kind: m[2] === 'lists' ? 'list' : 'post', name: address};
  }
  if (text.startsWith('at://')) return {kind: text.includes('/app.bsky.graph.list/') ? 'list' : 'post', name: text};
  if (/^[a-z0-9-]+(\.[a-z0-9-]+)+$/i.test(text)) return {kind: 'account', name: '@' + text};
  return null;
}

let pending = null; // what is being asked

// show shows the state that the address of the page names.
async function show() {
  if (pending) pending.abort();
  pending = new AbortController();
  const signal = pending.signal;
  const p = new URLSearchParams(location.search);
  const q = p.get('q') || '', out = $('out');
  $('q').value = q;
  document.title = q ? q + ' – skein' : 'skein';
  try {
    if (p.has('of')) await showRank(out, Object.fromEntries([...p].filter(([k]) => rankTakes.includes(k))), p.get('title') || '', signal);
    else if (q && subjectOf(q)) await showSubject(out, subjectOf(q), signal);
    else if (q) await showSet(out, q, p.get('cursor'), Number(p.get('page') || 1), signal);
    else welcome(out);
  } catch (e) {
    if (e.name === 'AbortError') return;
    showError(out, p.get('of') || q, e);
  }
}

const rankTakes = ['of', 'via', 'except', 'since', 'until', 'subjectsSince', 'by', 'min', 'limit'];

function go(params) {
  history.pushState(null, '', params ? href(params) : '/');
  show();
}

// What the server proposes to ask, and whether it finds handles.
let config = {handles: false, people: false, examples: []};

function welcome(out) {
  let examples = config.examples;
  if (!examples.length && config.handles) {
    examples = [{title: 'who follows both', params: {q: 'intersect(followers(@atproto.com), followers(@bsky.app))'}}, {title: 'liked in the last week', params: {q: 'likes(@bsky.app, since=7d)'}},
      {title: 'what an account’s follows like', params: {of: 'follows(@bsky.app)', via: 'likes', since: '24h', title: 'What those that @bsky.app follows like today'}}];
  }
  const links = examples.flatMap((e, i) => [i ? ' · ' : '', link(e.params, e.title)]);
  out.replaceChildren(el('p', {class: 'facts'}, config.handles ? 'Try a handle' : 'Give a DID, or an expression', ...(links.length ? [', or one of these: ', ...links] : []), '.'));
}

async function learnConfig() {
  try { config = await (await fetch('/page/config.json')).json(); } catch { /* the page goes on without */ }
  $('names').parentElement.hidden = config.people;
  if (!config.handles) $('q').placeholder = 'intersect(followers(did:plc:…), followers(did:plc:…))';
  return config.examples.length;
}

// What a demo has to propose is known once its network is there.
async function lookForExamples() {
  if (!config.examples.length && !config.handles && !location.search && await learnConfig()) show();
}

function showError(out, expression, e) {
  const box = el('div', {class: 'error', role: 'alert'}, el('b', {}, e.name === 'InvalidRequest' ? 'That cannot be asked: ' : e.name + ': '), e.message || String(e));
  const at = /at position (\d+)/.exec(e.message || '');
  if (at && expression) { // in bytes
    const before = new TextDecoder().decode(new TextEncoder().encode(expression).slice(0, Number(at[1])));
    box.append(el('pre', {tabindex: '0', 'aria-label': 'The place of the error'}, expression + '\n' + ' '.repeat([...before].length) + '^'));
    if ($('q').value === expression) $('q').setSelectionRange(before.length, before.length);
  }
  out.replaceChildren(box);
}

// ---- answers ----

const isSet = q => /^\s*[A-Za-z][A-Za-z0-9_]*\s*\(/.test(q);
const isOne = q => isSet(q) && !/^\s*(members|intersect|union|except)\s*\(/.test(q);

// showSet shows a page of a set: where it is one set, with the times of its records.
async function showSet(out, q, cursor, page, signal) {
  if (!isSet(q)) {
    if (/^[a-z0-9_]+$/i.test(q)) throw new Refused('InvalidRequest', `${q} is neither a handle with a domain, such as alice.example.com, nor an expression, such as followers(@alice.example.com)`);
  }
  const method = isOne(q) ? 'blue.skein.graph.list' : 'blue.skein.graph.query';
  const params = {set: q, limit: '50'};
  if (cursor) params.cursor = cursor;
  const {answer, took} = await ask(method, params, signal);
  const items = answer.items || answer.members.map(m => ({member: m}));
  const facts = [number.format(answer.total) + (answer.total === 1 ? ' member' : ' members')];
  if (page > 1) facts.push('page ' + page);
  if (answer.order === 'newest') facts.push('the newest first');
  facts.push(took.toFixed(took < 10 ? 1 : 0) + ' ms');
  out.replaceChildren(el('h2', {}, q), el('p', {class: 'facts'}, facts.join(' · ')), incomplete(answer),
    items.length ? list(items, i => [i.time && el('time', {datetime: i.time, class: 'more'}, new Date(i.time).toLocaleString())]) : el('p', {}, 'Nobody, as far as the index knows.'),
    answer.cursor ? el('p', {}, link({q, cursor: answer.cursor, page: String(page + 1)}, 'The next page')) : '', refine(q, answer.type), curlLine(method, params));
  name(out, signal);
}

// How a member of a ranking is related to those that were counted.
const led = {likes: 'liked by ', reposts: 'reposted by ', follows: 'followed by ', blocks: 'blocked by ', followers: 'follows ', blockers: 'blocks ', lists: 'has '};

// refine asks which of the members of a set are in another set, too: that is what sets are for.
function refine(q, type) {
  const ways = type === 'did' ? {
    'follow the account': ['account', x => `intersect(${q}, followers(${x}))`], 'are followed by the account': ['account', x => `intersect(${q}, follows(${x}))`],
    'are not followed by the account': ['account', x => `except(${q}, follows(${x}))`], 'liked the post': ['post', x => `intersect(${q}, likers(${x}))`],
    'are on the list': ['list', x => `intersect(${q}, listed(${x}))`], 'are not on the list': ['list', x => `except(${q}, listed(${x}))`],
  } : {
    'are liked by the account': ['account', x => `intersect(${q}, likes(${x}))`], 'are not liked by the account': ['account', x => `except(${q}, likes(${x}))`],
    'are reposted by the account': ['account', x => `intersect(${q}, reposts(${x}))`],
  };
  const way = el('select', {id: 'way'}, ...Object.keys(ways).map(w => el('option', {}, w)));
  const whom = el('input', {id: 'whom', required: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: config.handles ? '@alice.example.com' : 'did:plc:…', 'aria-label': 'Account, post or list', oninput: () => whom.setCustomValidity('')});
  return el('form', {class: 'follow', onsubmit: e => {
    e.preventDefault();
    const [kind, make] = ways[way.value], x = subjectOf(whom.value.trim());
    if (x && x.kind === kind) return go({q: make(x.name)});
    whom.setCustomValidity(kind === 'account' ? 'An account is needed here: a handle, a DID, or its address at bsky.app' : `A ${kind} is needed here: its AT URI, or its address at bsky.app`);
    whom.reportValidity();
  }}, el('label', {for: 'way'}, 'Which of these…'), way, whom, el('button', {}, 'Ask'));
}

async function showRank(out, params, title, signal) {
  params.limit ||= '50';
  const {answer, took} = await ask('blue.skein.graph.rank', params, signal);
  const by = params.by && params.by !== 'count';
  out.replaceChildren(el('h2', {}, title || `What the members of ${params.of} lead to by ${params.via}`),
    el('p', {class: 'facts'}, `${number.format(answer.items.length)} results · ${took.toFixed(0)} ms`), incomplete(answer),
    answer.items.length ? list(answer.items, i => [el('span', {class: 'more'}, (led[params.via] || 'by ') + number.format(i.count) + (by ? ` of ${number.format(i.total)}` : ''))]) : el('p', {}, 'Nothing, as far as the index knows.'),
    curlLine('blue.skein.graph.rank', params));
  name(out, signal);
}

const incomplete = answer => answer.incomplete ? el('p', {class: 'warn'}, answer.reason) : '';

// list lists members, each with what is known of it besides.
function list(items, more) {
  return el('ol', {class: 'members'}, ...items.map(i => el('li', {'data-member': i.member},
    el('span', {class: 'who'}, link({q: i.member}, el('span', {class: 'it'}, short(i.member)))), ...more(i).filter(Boolean), atBluesky(outside(i.member), i.member))));
}

// atBluesky leads to a member there, if it is not made up.
const atBluesky = (address, member) => config.people ? '' : el('a', {href: address, rel: 'noreferrer', 'aria-label': 'At bsky.app: ' + member}, '↗');

const short = member => member.replace(/^at:\/\//, '');

function outside(member) {
  const m = /^at:\/\/([^/]+)\/([^/]+)\/(.+)$/.exec(member);
  if (!m) return 'https://bsky.app/profile/' + member.replace(/^at:\/\//, '');
  const kind = {'app.bsky.feed.post': 'post', 'app.bsky.graph.list': 'lists', 'app.bsky.feed.generator': 'feed'}[m[2]];
  return 'https://bsky.app/profile/' + m[1] + (kind ? '/' + kind + '/' + m[3] : '');
}

// ---- one account, post or list ----

async function showSubject(out, s, signal) {
  const x = s.name;
  const set = (title, q) => ({title, q, params: {q}});
  let cards, follow = null;
  if (s.kind === 'account') {
    cards = [set('Followers', `followers(${x})`), set('Follows', `follows(${x})`), set('Mutual', `intersect(follows(${x}), followers(${x}))`),
      set('Liked in the last week', `likes(${x}, since=7d)`), set('New followers this week', `followers(${x}, since=7d)`), set('On the lists', `lists(${x})`),
      {title: 'What its follows like', note: 'in the last 24 hours', params: {of: `follows(${x})`, via: 'likes', since: '24h', title: `What those that ${x} follows like`}},
      {title: 'Similar accounts', note: 'followed by its followers, more than by everybody', params: {of: `followers(${x})`, via: 'follows', by: 'lift', except: `members(${x})`, title: `Accounts like ${x}`}}];
  } else if (s.kind === 'list') {
    cards = [set('On the list', `listed(${x})`), set('Who blocks it', `listblockers(${x})`)];
    follow = {label: 'Who of the list’s members follow this account?', make: a => `intersect(listed(${x}), followers(${a}))`};
  } else {
    cards = [set('Likers', `likers(${x})`), set('Reposters', `reposters(${x})`)];
    for (const k of kinds) {
      if (k.names === 'uri' && k.reverse && !['likers', 'reposters', 'listblockers'].includes(k.reverse)) cards.push(set(k.reverse, `${k.reverse}(${x})`));
    }
    follow = {label: 'Who of those that this account follows liked it?', make: a => `intersect(follows(${a}), likers(${x}))`};
  }
  const counts = cards.map(() => el('small', {}, '…'));
  const about = el('p', {class: 'facts'}, s.kind === 'account' ? ' ' : '');
  out.replaceChildren(el('h2', {class: 'subject', 'data-member': x}, el('span', {class: 'who'}, el('span', {class: 'it'}, x)), ' ', atBluesky(s.kind === 'account' ? 'https://bsky.app/profile/' + x.replace(/^@/, '') : x.startsWith('at:') ? outside(x) : x, x)), about,
    el('ul', {class: 'cards'}, ...cards.map((c, i) => el('li', {}, link(c.params, el('b', {}, c.title), c.q ? counts[i] : el('small', {}, c.note))))),
    follow ? el('form', {class: 'follow', onsubmit: e => {
      e.preventDefault();
      const input = e.target.elements.account, a = subjectOf(input.value.trim());
      if (a && a.kind === 'account') return go({q: follow.make(a.name)});
      input.setCustomValidity('An account is needed here: a handle, a DID, or its address at bsky.app');
      input.reportValidity();
    }, oninput: e => e.target.setCustomValidity('')}, el('label', {for: 'account'}, follow.label), el('input', {id: 'account', name: 'account', required: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: '@alice.example.com'}), el('button', {}, 'Ask')) : '');
  name(out, signal);
  const failed = await Promise.all(cards.map(async (c, i) => {
    if (!c.q) return null;
    try {
      const {answer} = await ask('blue.skein.graph.query', {set: c.q, count: 'true'}, signal);
      counts[i].textContent = number.format(answer.total);
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      counts[i].textContent = '–';
      return e;
    }
  }));
  const handle = failed.find(e => e && e.name !== 'InvalidRequest') || failed.find(e => e && /handle/.test(e.message));
  if (handle) about.replaceChildren(el('span', {role: 'alert'}, handle.message));
  else if (s.kind === 'account') {
    const {answer} = await ask('blue.skein.graph.getAccount', {actor: x}, signal);
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

// name says who the members are that are shown.
async function name(out, signal) {
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
  } catch { /* they stay without */ }
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

// ---- completion of the names of sets ----

let kinds = [], words = [];

async function learn() {
  try {
    kinds = (await ask('blue.skein.graph.getStats', {})).answer.kinds;
  } catch { kinds = []; }
  words = [['intersect', 'in all of them'], ['union', 'in any of them'], ['except', 'in the first, and in no other'], ['members', 'the ones given'], ['listed', 'who is on a list'], ['lists', 'the lists that an account is on']];
  for (const k of kinds) {
    if (k.forward) words.push([k.forward, 'of an account'], [k.reverse, k.names === 'did' ? 'of an account' : 'of a record']);
  }
  words.sort((a, b) => a[0] < b[0] ? -1 : 1);
}

const completion = {matches: [], at: -1, from: 0};

function complete() {
  const input = $('q'), before = input.value.slice(0, input.selectionStart);
  const m = /(^|[(,\s])([A-Za-z_]+)$/.exec(before);
  completion.matches = m ? words.filter(w => w[0].startsWith(m[2]) && w[0] !== m[2]) : [];
  completion.from = m ? before.length - m[2].length : 0;
  completion.at = completion.matches.length ? 0 : -1;
  drawCompletion();
}

function drawCompletion() {
  const box = $('words'), input = $('q');
  box.replaceChildren(...completion.matches.map(([word, what], i) => el('li', {id: 'word-' + i, role: 'option', 'aria-selected': String(i === completion.at), onmousedown: e => { e.preventDefault(); accept(i); }}, word, el('small', {}, what))));
  box.hidden = completion.matches.length === 0;
  input.setAttribute('aria-expanded', String(!box.hidden));
  if (box.hidden) input.removeAttribute('aria-activedescendant');
  else input.setAttribute('aria-activedescendant', 'word-' + completion.at);
  const on = $('word-' + completion.at);
  if (on) on.scrollIntoView({block: 'nearest'});
}

function accept(i) {
  const input = $('q'), word = completion.matches[i][0] + '(';
  const rest = input.value.slice(input.selectionStart);
  input.value = input.value.slice(0, completion.from) + word + (rest.startsWith('(') ? rest.slice(1) : rest || ')');
  input.setSelectionRange(completion.from + word.length, completion.from + word.length);
  completion.matches = [];
  drawCompletion();
}

function keys(e) {
  const n = completion.matches.length;
  if (n === 0) return;
  if (e.key === 'ArrowDown' || e.key === 'ArrowUp') completion.at = (completion.at + (e.key === 'ArrowDown' ? 1 : n - 1)) % n;
  else if (e.key === 'Tab' && !e.shiftKey) accept(completion.at);
  else if (e.key === 'Escape') completion.matches = [];
  else return;
  e.preventDefault();
  drawCompletion();
}

// ---- what it is doing now ----

const length = 900; // seconds
let eventRates = [], edgeRates = [];

function draw(id, values) {
  // A burst, as of what lay behind at the start, would make all else flat: it is cut.
  const sorted = [...values].sort((a, b) => a - b), at = q => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] || 0;
  const low = Math.min(0, at(0.1)), high = Math.max(1, Math.min(at(1), 3 * at(0.9)));
  const span = Math.max(60, values.length); // seconds shown
  const x = i => (length * (span - values.length + i + 1) / span).toFixed(1);
  const y = v => Math.min(79, Math.max(1, 78 - 76 * (v - low) / (high - low))).toFixed(1);
  const line = values.map((v, i) => (i ? 'L' : 'M') + x(i) + ' ' + y(v)).join('');
  const svg = $(id);
  svg.querySelector('.line').setAttribute('d', line);
  svg.querySelector('.area').setAttribute('d', values.length ? line + `L${length} ${y(0)}L${x(0)} ${y(0)}Z` : '');
}

function tile(name, value, note) {
  return el('div', {}, el('dt', {}, name), el('dd', {}, value, note ? el('small', {}, ' ' + note) : ''));
}

const states = {connecting: 'no connection to the relay', live: 'live', catchingUp: 'catching up', blocked: 'blocked: an operator must decide', off: 'only answering'};

function ago(seconds) {
  if (seconds < 1) return Math.max(0, seconds * 1000).toFixed(0) + ' ms';
  for (const [n, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) if (seconds >= 2 * n) return Math.floor(seconds / n) + ' ' + unit;
  return seconds.toFixed(1) + ' s';
}

function live(m) {
  if (m.history) { eventRates = m.history.events; edgeRates = m.history.edges; }
  else { eventRates.push(m.eventRate); edgeRates.push(m.edgeRate); }
  eventRates = eventRates.slice(-length);
  edgeRates = edgeRates.slice(-length);
  $('events-rate').textContent = number.format(m.eventRate);
  $('edges-rate').textContent = number.format(m.edgeRate);
  draw('events-chart', eventRates);
  draw('edges-chart', edgeRates);
  const dot = document.querySelector('.dot');
  dot.className = 'dot' + (m.state === 'live' || m.state === 'off' ? ' live' : m.state === 'blocked' ? ' bad' : '');
  const state = (states[m.state] || m.state) + (m.state === 'live' && m.lag !== undefined ? `, ${ago(m.lag)} behind` : '');
  if ($('state-text').textContent !== state) $('state-text').textContent = state;
  $('version').textContent = 'skein ' + m.version + ', ' + m.engine;
  const c = m.counts;
  $('tiles').replaceChildren(
    tile('Edges', rough.format(m.edges)), tile('Accounts', rough.format(c.accounts), c.hidden ? rough.format(c.hidden) + ' not active' : ''),
    tile('Past indexed', c.accounts ? (100 * c.complete / c.accounts).toFixed(c.complete < c.accounts ? 1 : 0) + ' %' : '–', c.complete ? `of ${rough.format(c.accounts)} accounts` : 'it is not fetched'),
    tile('Repos to fetch', m.waiting === undefined ? '–' : number.format(m.waiting)), tile('With gaps', number.format(c.desynchronized), 'accounts that something was missed of'),
    tile('Cursor', m.cursor === undefined ? '–' : number.format(m.cursor), m.cursorTime ? new Date(m.cursorTime).toLocaleString() : ''), tile('Disk', bytes(m.disk)));
  $('kinds').replaceChildren(...Object.entries(c.records).filter(([k, n]) => n && k !== 'listitem_list').sort((a, b) => b[1] - a[1]).map(([k, n]) => tile(k, rough.format(n))));
}

setInterval(lookForExamples, 5000);

function listen() {
  const source = new EventSource('/live');
  source.onmessage = e => live(JSON.parse(e.data));
  source.onerror = () => {
    document.querySelector('.dot').className = 'dot bad';
    $('state-text').textContent = 'the server does not answer';
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

// ---- begin ----

$('ask').addEventListener('submit', e => {
  e.preventDefault();
  completion.matches = [];
  drawCompletion();
  const q = $('q').value.trim();
  go(q ? {q} : null);
});
$('q').addEventListener('input', complete);
$('q').addEventListener('keydown', keys);
$('q').addEventListener('blur', () => { completion.matches = []; drawCompletion(); });
document.addEventListener('click', e => {
  const a = e.target.closest('a[data-link]');
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  history.pushState(null, '', a.getAttribute('href'));
  show();
  scrollTo(0, 0);
});
addEventListener('popstate', show);
$('names').checked = localStorage.getItem('names') === 'yes';
$('names').addEventListener('change', () => {
  localStorage.setItem('names', $('names').checked ? 'yes' : 'no');
  show();
});
listen();
Promise.all([learn(), learnConfig()]).then(show);
