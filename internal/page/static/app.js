// The page of skein: a box for queries, and the answers. The page's address holds the query:
// ?q= an expression, an account, a post, a list, or rank(…); ?feed= the line of a feed.
'use strict';

const $ = id => document.getElementById(id);

// el makes an element: el('a', {href: '/'}, 'text', child, …).
function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
    else if ((v ?? false) !== false) e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.filter(c => (c ?? false) !== false));
  return e;
}

// attribute sets attributes of an element.
const attribute = (e, all) => Object.entries(all).forEach(([k, v]) => e.setAttribute(k, v));

// action makes a plain button.
const action = (text, onclick, more) => el('button', {type: 'button', class: 'plain', onclick, ...more}, text);

// stored is a text that the browser keeps, if it allows that.
const stored = name => ({
  get: () => { try { return localStorage.getItem(name); } catch { return null; } },
  set: text => { try { localStorage.setItem(name, text); } catch { /* it is forgotten */ } },
});

const number = new Intl.NumberFormat().format;
const counted = (n, one) => number(n) + ' ' + one + (n === 1 ? '' : 's');
// countText says how many members a set has.
const countText = ({total, type, incomplete}) => counted(total, type === 'did' ? 'account' : 'record') + (incomplete ? ', may be incomplete' : '');

// Refused is an error answer.
class Refused extends Error {
  constructor(name, message) { super(message); this.name = name; }
}

const aborted = e => e.name === 'AbortError';

// ask calls a method. It returns the answer, the time it took, by the server's clock if known, and the time of the newest event in it.
async function ask(method, params, signal) {
  const path = '/xrpc/' + method + '?' + new URLSearchParams(params);
  const began = performance.now();
  let answer, response;
  try {
    response = await fetch(path, {signal});
    answer = await response.json();
  } catch (e) {
    if (aborted(e)) throw e;
    throw response ? new Refused('BadAnswer', 'the server’s answer cannot be read') : new Refused('Unreachable', 'the server does not answer');
  }
  if (!response.ok) throw new Refused(answer.error, answer.message);
  const timing = /dur=([\d.]+)/.exec(response.headers.get('Server-Timing'));
  const ms = timing ? Number(timing[1]) : performance.now() - began;
  return {answer, took: ms.toFixed(ms < 10 ? 1 : 0) + ' ms', asOf: response.headers.get('Skein-As-Of')};
}

// countOf asks for the number of members of a set.
const countOf = (set, signal) => ask('blue.skein.graph.query', {set, count: 'true'}, signal);

// link makes a link to a state of this page, at its address.
const address = params => '/?' + new URLSearchParams(params);
const link = (params, ...children) => el('a', {href: address(params), 'data-link': true}, ...children);

// clean removes spaces and invisible marks around text copied from a page.
const clean = text => text.replace(/^[\s\p{Cf}]+|[\s\p{Cf}]+$/gu, '');

// subjectOf parses a pasted name: an account, a list, a post or another record.
function subjectOf(text) {
  text = text.replace(/\p{Cf}/gu, '');
  if (/[\s(),]/.test(text)) return null;
  let m;
  const named = who => who.startsWith('did:') ? who : '@' + who.toLowerCase();
  if (text.startsWith('@')) return {kind: 'account', name: named(text.slice(1))};
  if ((m = /^(?:at:\/\/)?(did:[a-z]+:[^/]+|[a-z0-9-]+(?:\.[a-z0-9-]+)+)$/i.exec(text))) return {kind: 'account', name: named(m[1])};
  if ((m = /^(?:https?:\/\/)?bsky\.app\/profile\/@?([^/?#]+)\/?(?:([a-z]+)\/([^/?#]+))?/.exec(text))) {
    const owner = named(m[1]);
    return m[2] ? {kind: m[2] === 'lists' ? 'list' : 'post', name: `https://bsky.app/profile/${m[1]}/${m[2]}/${m[3]}`, owner} : {kind: 'account', name: owner};
  }
  if ((m = /^at:\/\/([^/]+)\/([^/]+)/.exec(text))) return {kind: m[2] === 'app.bsky.graph.list' ? 'list' : 'post', name: text, owner: m[1]};
  return null;
}

// rankOf returns the options of a ranking, {} if it cannot tell them, null for other text.
function rankOf(text) {
  if (!/^\s*(rank|blend)\s*\(/.test(text)) return null;
  const n = tree(text);
  return n && n.name === 'rank' ? Object.fromEntries(Object.entries(n.options).map(([k, v]) => [k, printed(v)])) : {};
}

const rankText = params => 'rank(' + Object.entries(params).map(([k, v]) => k + '=' + v).join(', ') + ')';

// alike returns the ranking of the accounts that resemble an account.
const alike = x => rankText({of: `followers(${x})`, via: 'follows', by: 'lift', except: `members(${x})`});

let pending = null, watching = null; // the query in flight, and the set being watched
let shown = null; // the state that is shown

async function show() {
  pending?.abort();
  watching?.close();
  watching = null;
  const asking = pending = new AbortController(), signal = asking.signal;
  const p = new URLSearchParams(location.search);
  const q = p.get('q') || '', feed = p.get('feed'), out = $('out');
  if (shown !== location.search) {
    if (shown !== null || q) $('q').value = q; // keep text typed while the page loaded
    shown = location.search;
  }
  out.setAttribute('aria-busy', 'true'); // it still shows another answer
  const overlap = p.get('overlap'), status = p.has('status'), asked = feed || q || overlap;
  document.title = (status ? 'Index status – ' : asked ? asked + ' – ' : '') + 'skein';
  $('now').hidden = !status;
  const answered = waiting(out, asked, asking);
  try {
    if (status) return out.replaceChildren();
    if (overlap !== null) return showOverlap(out, overlap, signal);
    if (!asked) return welcome(out, signal);
    const s = subjectOf(q), rank = rankOf(q), cursor = p.get('cursor'), paged = {cursor: cursor && {cursor}, page: Number(p.get('page') || 1), order: p.get('order')};
    if (feed) await showFeed(out, feed, p.get('viewer'), paged, signal);
    else if (rank) await showRank(out, q, rank, paged, signal);
    else if (s) await showSubject(out, s, signal);
    else await showSet(out, q, paged, signal);
    recent.add(asked);
    announce(out.querySelector('.facts'));
  } catch (e) {
    if (!aborted(e)) showError(out, q, e);
  } finally {
    answered();
    if (!signal.aborted) out.removeAttribute('aria-busy');
  }
}

// announce makes a screen reader speak.
const announce = element => { $('announced').textContent = element ? [...element.childNodes].map(n => n.selectedOptions ? n.selectedOptions[0].text : n.textContent).join('') : ''; };

// go shows the state that params describe.
const go = params => visit(params.q === '' ? '/' : address(params));

// visit shows another state of this page, and keeps the scroll position of this one.
async function visit(to) {
  history.replaceState({y: scrollY}, '');
  history.pushState(null, '', to);
  await show();
  scrollTo(0, 0);
}

// atAnswer moves the focus to the answer, so that a screen reader continues there.
function atAnswer() {
  $('out').querySelector('h2')?.focus({preventScroll: true});
}

let latest = {}; // the state of the index, from live.js

let config = {sets: [], examples: []};

// setOf returns what the server says about a set, by its name.
const setOf = name => config.sets.find(s => s.name === name) || {};

const card = (params, titled, expr, note, form) => form ? el('li', {class: 'asks'}, link(params, el('b', {}, titled)), form, note) : el('li', {}, link(params, el('b', {}, titled), el('code', {}, ...spell(expr, 'span')), note));

function welcome(out, signal) {
  const below = el('div'), fill = () => {
    const notes = config.examples.map(e => el('small', {}, /^(rank|@|did:|at:)/.test(e.q) ? '' : '…'));
    below.replaceChildren(config.examples.length ? el('ul', {class: 'cards'}, ...config.examples.map((e, i) => card({q: e.q}, e.title, e.q, notes[i], editable(e.q)))) : facts('Enter a DID or an expression.'),
      templates());
    nameThem(out, signal);
    config.examples.forEach(async (e, i) => {
      if (!notes[i].textContent) return;
      try {
        const {answer, took} = await countOf(e.q, signal);
        notes[i].textContent = countText(answer) + ' · ' + took;
      } catch { notes[i].textContent = ''; }
    });
  };
  out.replaceChildren(you(signal), below);
  fill();
  emptiness(out, signal);
  if (!config.examples.length) propose(signal, fill).catch(() => { /* later */ });
}

// propose makes examples about accounts that this index has: those with the most followers and follows of the server's
// accounts, @bsky.app and @atproto.com. It calls fill with them, and again once it knows their handles.
async function propose(signal, fill) {
  if (config.examples.length) return fill();
  const all = new Set([...config.accounts || [], ...config.public ? ['did:plc:z72i7hdynmk6r22z27h6tvur', 'did:plc:ewvi7nxzyoun6zhxrhs64oiz'] : []]);
  if (!all.size) return;
  const {answer: {subjects}} = await ask('blue.skein.graph.counts', [['edge', 'followers'], ['edge', 'follows'], ...[...all].map(a => ['subject', a])], signal);
  const most = i => subjects.filter(s => s.totals[i]).sort((a, b) => b.totals[i] - a.totals[i]).map(s => s.subject), chosen = [...most(1).slice(0, 1), ...most(0).slice(0, 2)];
  if (!chosen[1]) return;
  const show = ([who, one, other]) => {
    config.examples = [...other ? [['Who follows both of these accounts?', `intersect(followers(${one}), followers(${other}))`]] : [], ['Who follows this account back?', `intersect(follows(${who}), followers(${who}))`],
      ['Posts liked by the accounts that this account follows', rankText({of: `follows(${who})`, via: 'likes'})], ['An account', who]].map(([title, q]) => ({title, q}));
    fill();
  };
  show(chosen);
  if (!config.handles) return;
  const {answer: {handles}} = await ask('blue.skein.graph.query', {set: `members(${chosen})`, names: 'true'}, signal);
  if (!$('out').contains(document.activeElement)) show(chosen.map(did => handles[did] ? '@' + handles[did] : did));
}

async function learnConfig() {
  try { config = await (await fetch('/page/config.json')).json(); } catch { /* the page works without it */ }
  $('names').parentElement.hidden = !config.public;
  $('names').checked = keep.get() !== 'no';
  if (!config.handles) {
    $('q').placeholder = 'intersect(followers(did:plc:…), followers(did:plc:…))';
    $('label').textContent = 'A DID, an AT URI, a bsky.app link or an expression';
  }
}

// lookForExamples asks again while there are no examples, as in an empty store.
async function lookForExamples() {
  if (config.examples.length || document.hidden || location.search) return;
  await learnConfig();
  propose(pending.signal, () => location.search || welcome($('out'), pending.signal)).catch(() => { /* later */ });
}

const isSet = q => /^\s*[A-Za-z][A-Za-z0-9_]*\s*\(/.test(q);
const isOne = q => isSet(q) && setOf(/\w+/.exec(q)[0]).of;
const title = (...children) => el('h2', {tabindex: '-1'}, ...children);

// literals matches the names in an expression: handles, DIDs, AT URIs and bsky.app addresses.
const literals = /(@[\w-]+(?:\.[\w-]+)+|did:[a-z]+:[A-Za-z0-9._:%-]+|at:\/\/[^\s(),"]+|https:\/\/bsky\.app\/profile\/[^\s(),"]+)/;

// spell returns an expression with a link at each name. names.js replaces the names.
const spell = (text, as = 'a') => text.split(literals).map((part, i) => i % 2 === 0 ? part : el(as, {class: 'lit', 'data-member': part, ...as === 'a' && {href: address({q: part}), 'data-link': true}}, part));

// showSet shows a page of a set, with the times of its records if the expression is one set.
async function showSet(out, q, paged, signal) {
  if (!isSet(q) && /^[a-z0-9_-]+$/i.test(q)) throw new Refused('InvalidRequest', `${q} is neither a handle such as alice.example.com nor an expression such as followers(@alice.example.com)`);
  const method = isOne(q) || paged.order ? 'blue.skein.graph.list' : 'blue.skein.graph.query', params = {set: q, limit: '50', ...paged.order && {order: paged.order}};
  const {answer, took} = await ask(method, {...params, ...paged.cursor}, signal);
  const items = answer.items || answer.members.map(m => ({member: m})), whose = answer.type === 'did';
  out.replaceChildren(title(el('code', {}, ...spell(q))), facts(counted(answer.total, whose ? 'account' : 'record'), paged.page > 1 && 'page ' + paged.page, orders(q, answer), took), incomplete(answer),
    paged.page > 1 ? '' : isOne(q) ? byTime(q, whose ? 'Accounts' : 'Records', signal) : combined(q, signal),
    actions({method, params, total: answer.total, panels: {Filter: refine(q, answer.type)}, watch: q}),
    ...members({q, ...paged.order && {order: paged.order}}, paged, answer, items, i => [i.size !== undefined && el('span', {class: 'more'}, counted(i.size, whose ? 'follower' : 'like')), i.time && relative(i.time)]));
  nameThem(out, signal);
}

// orders returns a choice of the order of a set. Sets of the server's limit or less can be sorted by size.
function orders(q, {type, total, order}) {
  const size = type === 'did' ? ['size(followers)', 'most followers first'] : ['size(likers)', 'most likes first'];
  const all = [...isOne(q) ? [['newest', 'newest first'], ['oldest', 'oldest first']] : [['id', 'unsorted']], size];
  if (order && !all.some(([o]) => o === order)) all.unshift([order, order === 'id' ? 'unsorted' : order]);
  return total > 1 && all.length > 1 && el('select', {'aria-label': 'Order', class: 'order', onchange: e => go({q, order: e.target.value})}, ...all.map(([o, text]) => el('option', {value: o, selected: o === order}, text)));
}

const facts = (...all) => el('p', {class: 'facts'}, ...all.filter(Boolean).flatMap((f, i) => i ? [' · ', f] : [f]));

// members lists the members on a page of an answer, with a link to the next page.
const members = (state, {page}, answer, items, more) => [
  items.length ? list(items, more) : nothing(answer, state.q),
  answer.cursor ? el('p', {}, link({...state, cursor: answer.cursor, page: String(page + 1)}, 'Next page')) : ''];

const howMany = ({page}, {cursor}, items, one) => page > 1 ? 'page ' + page : (cursor ? 'first ' : '') + counted(items.length, one);

function rankTitle(q, p) {
  if (!p.of || !p.via) return q;
  const of = p.of, m = /^follow(s|ers)\(([^(),]+)\)$/.exec(of);
  const whom = !m ? of : m[1] === 's' ? `the accounts that ${m[2]} follows` : 'the followers of ' + m[2];
  const when = (p.since ? (/^\d+[a-z]+$/.test(p.since) ? ', in the last ' : ', since ') + p.since : '') + (p.until ? ', until ' + p.until : '');
  return `${setOf(p.via).heading || p.via + ' of'} ${whom}${when}${p.by === 'lift' ? ', more than by chance' : p.by === 'share' ? ', by share of total' : ''}`;
}

// opened returns the set behind a count of a ranking, null if there is none.
function opened(params, member) {
  const {inverse} = setOf(params.via);
  if (!inverse || !params.of) return null;
  const window = ['since', 'until'].filter(w => params[w]).map(w => `, ${w}=${params[w]}`).join('');
  return `intersect(${params.of}, ${inverse}(${/^(at:\/\/)?did:[^\s(),"]+$/.test(member) ? member : JSON.stringify(member)}${window}))`;
}

// showRank shows a page of a ranking. params are its options.
async function showRank(out, q, params, paged, signal) {
  const method = 'blue.skein.graph.rank', asked = {limit: '50', set: q};
  const {answer, took} = await ask(method, {...asked, ...paged.cursor}, signal);
  const part = i => i.lift ? ` of them · ${(i.lift / 1e6).toFixed(1)} × as many as expected by chance` : i.share ? ` (${(i.share / 1e4).toFixed(1)}% of all ${number(i.total)})` : i.score >= 0 ? `, score ${number(+(i.score / 1e9).toPrecision(3))}` : '';
  const count = i => {
    const {deed} = setOf(params.via), text = (deed ? deed + ' ' : '') + number(i.count) + (deed && !i.lift && !i.share ? ' of them' : ''), set = opened(params, i.member);
    return [el('span', {class: 'more'}, set ? link({q: set}, text) : text, part(i))];
  };
  out.replaceChildren(title(...spell(rankTitle(q, params))), facts(howMany(paged, answer, answer.items, 'result'), params.of && link({q: params.of}, 'based on ' + (answer.of ? counted(answer.of, 'member') : params.of)), took), incomplete(answer),
    actions({method, params: asked}), ...members({q}, paged, answer, answer.items, count));
  nameThem(out, signal);
  faces(out, params, signal);
}

// list lists members, each with more details.
const list = (items, more) => el('ol', {class: 'members'}, ...items.map(i => row(i.member, ...more(i).filter(Boolean))));

const row = (member, ...more) => el('li', {'data-member': member},
  who(member, member.replace(/^at:\/\//, '')), ...more, atBluesky(member));

// who is what names.js names: a link to a member.
const who = (q, text = q) => el('span', {class: 'who'}, link({q}, el('span', {class: 'it'}, text)));

// atBluesky links to a member at bsky.app, which knows those of the public network.
const atBluesky = member => config.public && el('a', {class: 'away', href: outside(member), rel: 'noreferrer', 'aria-label': 'At bsky.app: ' + member}, '↗');

function outside(member) {
  const m = /^at:\/\/([^/]+)\/([^/]+)\/(.+)$/.exec(member);
  if (!m) return member.startsWith('https:') ? member : 'https://bsky.app/profile/' + member.replace(/^(at:\/\/|@)/, '');
  const kind = {'app.bsky.feed.post': 'post', 'app.bsky.graph.list': 'lists', 'app.bsky.feed.generator': 'feed'}[m[2]];
  return 'https://bsky.app/profile/' + m[1] + (kind ? '/' + kind + '/' + m[3] : '');
}

// titles are those of sets of posts whose names say little.
const titles = {repliedTo: 'Posts it answers', quoted: 'What it quotes', mentions: 'Accounts it mentions', mentioners: 'Accounts that mention it', tags: 'Tags it uses'};
// setCards returns a card for each set of an account, a post or a list.
const setCards = (kind, x) => config.sets.filter(s => s.of === kind || kind === 'post' && s.of === 'record').map(s => [s.title || titles[s.name] || s.name[0].toUpperCase() + s.name.slice(1), `${s.name}(${x})`, '', s.meaning]);

// showSubject shows an account, a post or a list, with queries about it.
async function showSubject(out, s, signal) {
  const x = s.name;
  if (x.startsWith('@') && !x.includes('.')) throw new Refused('InvalidRequest', `${x} is not a handle: a handle is a full domain name, such as ${x}.bsky.social`);
  const cards = setCards(s.kind, x);
  let form = '';
  if (s.kind === 'account') {
    cards.push(['Mutual follows', `mutuals(${x})`], ['Posts it liked this week', `likes(${x}, since=7d)`], ['New followers this week', `followers(${x}, since=7d)`],
      ['Posts liked by accounts it follows', rankText({of: `follows(${x})`, via: 'likes', since: '24h'}), 'in the last 24 hours'],
      ['Similar accounts', alike(x), 'followed more by this account’s followers than by accounts in general']);
  } else if (s.kind === 'list') {
    form = subjectForm('Which members of this list follow', '', () => 'account', a => ({q: `intersect(listed(${x}), followers(${a}))`}));
  } else {
    form = subjectForm('Show the likers of this post who are followed by', '', () => 'account', a => ({q: `intersect(follows(${a}), likers(${x}))`}));
  }
  const counts = cards.map(([, , note]) => el('small', {}, note || '…'));
  const about = facts(' '), warning = el('p', {class: 'warn', hidden: true});
  const by = owner => about.replaceChildren('By ', el('span', {class: 'tag', 'data-member': owner}, who(owner, 'its author')));
  if (s.owner) by(s.owner);
  const heading = title(el('span', {class: 'who'}, el('span', {class: 'it'}, x)), ' ', atBluesky(x));
  heading.classList.add('subject');
  heading.dataset.member = x;
  out.replaceChildren(el('div', {class: 'head'}, heading, ...share()), about, warning, s.kind === 'account' ? el('div', {class: 'pictures'}, circle(x, signal), byTime(`followers(${x})`, 'Followers', signal, true), week(x, signal)) : '', el('ul', {class: 'cards'}, ...cards.map(([name, q, , meaning], i) => el('li', {title: meaning}, link({q}, el('b', {}, name), counts[i])))),
    s.kind === 'post' ? byTime(`likers(${x})`, 'Likes', signal) : '', form);
  nameThem(out, signal);
  if (x.startsWith('https:')) { // only the server knows its AT URI
    ask('blue.skein.graph.query', {set: `members(${x})`}, signal).then(({answer}) => {
      heading.dataset.member = answer.members[0];
      by(ownerOf(answer.members[0]));
      nameThem(out, signal);
    }).catch(() => { /* the cards show the error */ });
  }
  const failed = await Promise.all(cards.map(async ([, q, note], i) => {
    if (note) return null;
    // A set that is empty or cannot be counted gets no link.
    const close = text => {
      counts[i].textContent = text;
      const a = counts[i].parentElement;
      if (a.href) a.replaceWith(el('div', {}, ...a.childNodes));
    };
    try {
      const {answer} = await countOf(q, signal);
      const total = answer.incomplete && !answer.total ? 'unknown' : (answer.incomplete ? 'at least ' : '') + number(answer.total);
      if (answer.total) counts[i].textContent = total;
      else close(total);
      if (answer.incomplete && warning.hidden) {
        warning.textContent = 'These counts may be incomplete: ' + answer.reason + '.';
        warning.hidden = false;
      }
    } catch (e) {
      if (aborted(e)) throw e;
      close(plain(e.message));
      return e;
    }
  }));
  const errors = failed.filter(Boolean);
  if (errors.length && errors.length === cards.filter(c => !c[2]).length) throw new Refused(errors[0].name, plain(errors[0].message)); // the name is wrong
  if (s.kind === 'account') {
    const {answer} = await ask('blue.skein.graph.getAccount', {did: x}, signal);
    about.textContent = (heading.querySelector('.it').textContent === answer.did ? '' : answer.did + ' · ') + answer.description;
    if (x.startsWith('@')) handles.set(answer.did, x);
  }
}
