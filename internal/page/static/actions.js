// The bar above an answer.
'use strict';

// actions makes the bar of the answer to method with params. panels are elements by name, watch the
// set to watch. Copy and CSV take all pages.
function actions({method, params, total, panels = {}, watch, most = 1000}) {
  const note = el('p', {class: 'facts', role: 'status'}), bar = el('div', {class: 'bar', role: 'group', 'aria-label': 'Actions'}), below = el('div');
  const panel = (name, content) => {
    content.hidden = true;
    const button = action(name, () => {
      const open = content.hidden;
      for (const b of bar.querySelectorAll('[aria-expanded=true]')) if (b !== button) b.click();
      content.hidden = !open;
      button.setAttribute('aria-expanded', String(open));
      if (open && content.querySelector('input')) content.querySelector('select, input').focus();
    }, {'aria-expanded': 'false'});
    bar.append(button);
    below.append(content);
  };
  const take = (name, what) => bar.append(action(name, async () => {
    const {signal} = pending, busy = on => bar.querySelectorAll('.take').forEach(b => { b.disabled = on; });
    busy(true);
    try {
      note.textContent = await what(everything(method, params, most, n => { note.textContent = `${number(n)}${total ? ' of ' + number(total) : ''}…`; }, signal));
    } catch (e) {
      if (!aborted(e)) note.textContent = 'Failed: ' + sentence(plain(e.message));
    }
    busy(false);
  }, {class: 'plain take'}));
  for (const name in panels) panel(name, panels[name]);
  if (watch && latest.state !== 'off') below.append(changes(watch, bar, note)); // only an indexing server sees changes
  bar.append(...share());
  panel('curl command', curlLine(method, params));
  if (window.ClipboardItem) take('Copy all', copyAll);
  take('CSV', rows => saveCSV(rows, params));
  return el('div', {}, bar, note, below);
}

// sentence ends a message with one full stop.
const sentence = text => text.replace(/\.?$/, '.');

// mostTaken limits what a page copies or saves. skein query prints more.
const mostTaken = 100_000;

// everything fetches all pages, of each members, and the first reasons why they may lack some or are a sample.
async function everything(method, params, each, progress, signal) {
  const rows = [];
  let reason, sample;
  for (let cursor = ''; ;) {
    const {answer} = await ask(method, {...params, ...config.handles && method.startsWith('blue.') && {names: 'true'}, limit: String(each), ...cursor && {cursor}}, signal);
    const items = answer.items || answer.feed?.map(i => ({member: i.post})) || answer.members.map(m => ({member: m}));
    reason ||= answer.reason;
    sample ||= answer.sample;
    rows.push(...items.map(({member, ...more}) => ({member, ...answer.handles && {handle: answer.handles[ownerOf(member)] || ''}, ...more})));
    cursor = answer.cursor || '';
    if (!cursor || rows.length >= mostTaken) return {rows: await named(rows, signal), more: cursor, reason, sample};
    progress(rows.length);
  }
}

// named adds the names of the accounts, if the viewer wants names, to the first thousand rows.
async function named(rows, signal) {
  if (!described()) return rows;
  await learn(rows.slice(0, 1000).map(r => r.member), signal).catch(() => { /* without names */ });
  return rows.map(({member, handle, ...more}) => {
    const p = profiles.get(ownerOf(member)) || {};
    return {member, handle: handle || p.handle || '', name: p.displayName || '', ...more};
  });
}

const taken = ({rows, more, reason, sample}) => sentence([(more ? 'only the first ' : '') + counted(rows.length, 'line'), more && 'For all: “skein query” in a shell', reason && 'May be incomplete: ' + reason, sample && 'From a sample: ' + sample].filter(Boolean).join('. '));

// safe quotes a value for CSV, so that a line break in it begins no line, and keeps a spreadsheet from computing it.
function safe(v) {
  v = v.replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\n\r]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v;
}

// copyAll starts to copy before it has the answer: a page may copy only soon after a click.
async function copyAll(asking) {
  const text = asking.then(({rows}) => new Blob([rows.map(r => [r.member, r.handle, r.name].filter(v => v !== undefined).map(v => safe(v).replaceAll('\t', ' ')).join('\t') + '\n').join('')], {type: 'text/plain'}));
  await Promise.all([asking, navigator.clipboard.write([new ClipboardItem({'text/plain': text})])]);
  return 'Copied ' + taken(await asking);
}

// save saves a text as a file, which is named after a query.
function save(q, ending, type, text) {
  const href = URL.createObjectURL(new Blob([text], {type}));
  el('a', {href, download: 'skein-' + q.replace(/\W+/g, '-').slice(0, 60) + ending}).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

async function saveCSV(asking, params) {
  const {rows} = await asking, names = [...new Set(['member', ...rows.flatMap(Object.keys)])];
  save(Object.values(params).find(v => /\W/.test(v)), '.csv', 'text/csv', [names, ...rows.map(r => names.map(n => safe(String(r[n] ?? ''))))].map(r => r.join(',') + '\r\n').join(''));
  return 'Saved ' + taken(await asking);
}

function curlLine(method, params) {
  const quoted = s => "'" + s.replaceAll("'", "'\\''") + "'";
  return copied('This query as a curl command', 'curl -G ' + quoted(location.origin + '/xrpc/' + method) + Object.entries(params).map(([k, v]) => ' \\\n  --data-urlencode ' + quoted(k + '=' + v)).join(''));
}

// copied shows a text, with a button that copies it.
function copied(label, text) {
  const copy = action('copy', async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = 'copied'; } catch { getSelection().selectAllChildren(pre); }
  });
  const pre = el('pre', {tabindex: '0', 'aria-label': label}, text);
  return el('div', {class: 'curl'}, pre, copy);
}

// refine asks which of a set's members are in another set, or not.
function refine(q, type) {
  const first = /^\s*(\w+)/.exec(q), members = first && setOf(first[1]).members || (type === 'did' ? 'account' : 'post');
  const group = m => m === 'record' ? 'post' : m, ways = {}; // the last word of a way is what it needs
  for (const s of config.sets.filter(s => s.of && group(s.members) === group(members))) {
    ways[`${s.which} the ${s.of}`] = x => `intersect(${q}, ${s.name}(${x}))`;
    ways[`${s.whichNot} the ${s.of}`] = x => `except(${q}, ${s.name}(${x}))`;
  }
  const way = el('select', {id: 'way', onchange: () => $('whom').setCustomValidity('')}, ...Object.keys(ways).map(w => el('option', {}, w)));
  return subjectForm('Keep only those that', way, () => way.value.split(' ').at(-1), x => ({q: ways[way.value](x)}));
}

// subjectForm asks for a subject of a kind, '' for an account or nothing, and then goes to the state
// that make returns for its name.
function subjectForm(label, way, kind, make, value) {
  const input = el('input', {id: 'whom', value, placeholder: config.handles ? '@alice.example.com' : 'did:plc:…', 'aria-label': way ? 'Account, post or list' : null, oninput: () => input.setCustomValidity('')});
  const form = el('form', {class: 'follow', onsubmit: e => {
    e.preventDefault();
    const text = clean(input.value), x = subjectOf(text), wanted = kind() || text && 'account';
    if (!wanted) return go(make('')).then(atAnswer);
    if (x && (x.kind === wanted || wanted === 'record' && x.kind !== 'account')) return go(make(x.name)).then(atAnswer);
    input.setCustomValidity(accepted(wanted));
    input.reportValidity();
  }}, el('label', {for: way ? 'way' : 'whom'}, label), way, input, el('button', {}, 'Show'));
  completes(input, subjects(kind));
  return form;
}

// accepted says what to enter for a subject of a kind.
const accepted = kind => kind === 'account' ? `Enter an account’s ${config.handles ? 'handle (such as @alice.example.com), ' : ''}DID or bsky.app link` : `Enter the AT URI or bsky.app link of a ${kind}`;

// changes lists the members that enter and leave a set from now on, each once. It uses a
// websocket, because a browser has few other connections.
function changes(q, bar, note) {
  const list = el('ol', {class: 'members', role: 'log', 'aria-label': 'Changes', hidden: true});
  let cursor = '', wait = 500, begun = false, added = 0, removed = 0, asked = 0;
  const stop = text => {
    watching?.close();
    watching = null;
    button.textContent = 'Watch';
    note.textContent = text;
  };
  const receive = m => {
    cursor = m.cursor || cursor;
    wait = 500;
    if (m.reset && begun) list.prepend(el('li', {}, 'Changes may be missing here.'));
    begun = true;
    for (const [way, members] of [['added', m.entered], ['removed', m.left]]) {
      for (const member of members || []) {
        for (const before of list.children) if (before.dataset.member === member) before.remove();
        list.prepend(row(member, el('span', {class: 'more'}, way + ' ' + new Date().toLocaleTimeString())));
      }
    }
    while (list.childElementCount > 100) list.lastChild.remove();
    list.hidden = !list.childElementCount;
    added += (m.entered || []).length;
    removed += (m.left || []).length;
    nameThem(list, pending.signal);
    recount(++asked, watching);
  };
  const recount = async (turn, mine) => {
    const {answer} = await countOf(q, pending.signal).catch(() => ({answer: {}}));
    if (turn === asked && watching === mine) note.textContent = `Watching${answer.total >= 0 ? ': now ' + number(answer.total) : ''}; ${list.hidden ? 'no changes yet' : `${number(added)} added, ${number(removed)} removed`}.`;
  };
  const connect = () => {
    const w = new WebSocket(location.origin.replace(/^http/, 'ws') + '/xrpc/blue.skein.graph.subscribe?' + new URLSearchParams(cursor ? {set: q, cursor} : {set: q}));
    const mine = watching = {close: () => { w.onclose = null; w.close(); }};
    w.onmessage = e => {
      const m = JSON.parse(e.data);
      if (!m.error) receive(m);
    };
    w.onclose = async () => {
      if (!begun) { // if it was refused, a plain request returns the reason
        const response = await fetch('/xrpc/blue.skein.graph.subscribe?' + new URLSearchParams({set: q})).catch(() => null);
        if (watching !== mine) return response?.body?.cancel();
        if (response && !response.ok) return stop('Cannot watch this: ' + sentence(plain((await response.json().catch(() => ({}))).message)));
        response?.body?.cancel();
      }
      note.textContent = 'Connection lost; reconnecting…';
      setTimeout(() => { if (watching === mine) connect(); }, wait);
      wait = Math.min(2 * wait, 30_000);
    };
  };
  const button = action('Watch', () => {
    if (watching) return stop('');
    button.textContent = 'Stop watching';
    note.textContent = 'Connecting…';
    connect();
  });
  bar.append(button);
  return list;
}
