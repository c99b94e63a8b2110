// The bar above an answer.
'use strict';

// actions makes the bar of an answer, which params of method gave: refine is a form or '', watch
// the set that is watched. Copy and CSV take all pages, or where whole is set this one.
function actions({method, params, total, refine = '', watch, whole, most = 1000}) {
  const note = el('p', {class: 'facts', role: 'status'}), bar = el('div', {class: 'bar', role: 'group', 'aria-label': 'What to do with this'}), below = el('div');
  const panel = (name, content) => {
    content.hidden = true;
    const button = el('button', {type: 'button', class: 'plain', 'aria-expanded': 'false', onclick: () => {
      const open = content.hidden;
      for (const b of bar.querySelectorAll('[aria-expanded=true]')) if (b !== button) b.click();
      content.hidden = !open;
      button.setAttribute('aria-expanded', String(open));
      if (open && content.querySelector('input')) content.querySelector('select, input').focus();
    }}, name);
    bar.append(button);
    below.append(content);
  };
  const take = (name, what) => bar.append(el('button', {type: 'button', class: 'plain take', onclick: async () => {
    const all = [...bar.querySelectorAll('.take')], signal = pending.signal;
    all.forEach(b => { b.disabled = true; });
    try {
      note.textContent = await what(everything(method, params, whole ? null : most, n => { note.textContent = `${number.format(n)}${total ? ' of ' + number.format(total) : ''}…`; }, signal));
    } catch (e) {
      if (e.name !== 'AbortError') note.textContent = 'That failed: ' + plain(e.message) + '.';
    }
    all.forEach(b => { b.disabled = false; });
  }}, name));
  if (refine) panel('Which of these…', refine);
  if (watch && indexing !== false) below.append(changes(watch, bar, note)); // else it hears of none
  panel('curl', curlLine(method, params));
  if (window.ClipboardItem) take('Copy all', copyAll);
  take('CSV', rows => saveCSV(rows, params));
  return el('div', {}, bar, note, below);
}

// mostTaken bounds what a page copies or saves: beyond it, skein query --format is the way.
const mostTaken = 100_000;

// everything asks for all pages, each of so many, or with null for the one that params ask for.
async function everything(method, params, each, progress, signal) {
  const rows = [];
  for (let cursor = ''; ;) {
    const {answer} = await ask(method, {...params, ...each && {limit: String(each)}, ...cursor && {cursor}}, signal);
    rows.push(...answer.items || (answer.feed ? answer.feed.map(i => ({member: i.post})) : answer.members.map(m => ({member: m}))));
    cursor = answer.cursor || '';
    if (!cursor || !each) return {rows, more: false};
    if (rows.length >= mostTaken) return {rows, more: true};
    progress(rows.length);
  }
}

const taken = ({rows, more}) => (more ? 'the first ' : '') + counted(rows.length, 'line');

// copyAll copies while it asks: a browser lets a page copy only soon after a click.
async function copyAll(asking) {
  const text = asking.then(({rows}) => new Blob([rows.map(r => r.member + '\n').join('')], {type: 'text/plain'}));
  await Promise.all([asking, navigator.clipboard.write([new ClipboardItem({'text/plain': text})])]);
  return 'Copied: ' + taken(await asking) + '.';
}

async function saveCSV(asking, params) {
  const {rows} = await asking, names = Object.keys(rows[0] || {member: 0});
  const cell = v => /[",\n\r]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v;
  const href = URL.createObjectURL(new Blob([[names, ...rows.map(r => names.map(n => cell(String(r[n] ?? ''))))].map(r => r.join(',') + '\r\n').join('')], {type: 'text/csv'}));
  el('a', {href, download: 'skein-' + Object.values(params).find(v => /\W/.test(v)).replace(/\W+/g, '-').slice(0, 60) + '.csv'}).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
  return 'Saved: ' + taken(await asking) + '.';
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

// refine asks which of a set's members are in another set.
function refine(q, type) {
  const both = set => x => `intersect(${q}, ${set}(${x}))`, without = set => x => `except(${q}, ${set}(${x}))`;
  // What a way asks for is its last word.
  const ways = type === 'did' ? {
    'follow the account': both('followers'), 'are followed by the account': both('follows'), 'are not followed by the account': without('follows'), 'liked the post': both('likers'),
    'are on the list': both('listed'), 'are not on the list': without('listed'), 'block the account': both('blockers'),
  } : /^\s*list(s|blocks)\s*\(/.test(q) ? {'are blocked by the account': both('listblocks'), 'are not blocked by the account': without('listblocks')
  } : {'are liked by the account': both('likes'), 'are not liked by the account': without('likes'), 'are reposted by the account': both('reposts')};
  const way = el('select', {id: 'way', onchange: () => $('whom').setCustomValidity('')}, ...Object.keys(ways).map(w => el('option', {}, w)));
  return subjectForm('Which of these…', way, () => way.value.split(' ').at(-1), x => ({q: ways[way.value](x)}));
}

// subjectForm asks for a subject, and goes to what make makes of its name.
function subjectForm(asks, way, kind, make, value) {
  const input = el('input', {id: 'whom', value, required: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: config.handles ? '@alice.example.com' : 'did:plc:…', 'aria-label': way ? 'Account, post or list' : null, oninput: () => input.setCustomValidity('')});
  return el('form', {class: 'follow', onsubmit: e => {
    e.preventDefault();
    const x = subjectOf(clean(input.value)), wanted = kind();
    if (x && x.kind === wanted) return go(make(x.name)).then(atAnswer);
    input.setCustomValidity(wanted === 'account' ? `An account is needed here: ${config.handles ? 'a handle such as @alice.example.com, ' : ''}a DID, or its address at bsky.app` : `A ${wanted} is needed here: its AT URI, or its address at bsky.app`);
    input.reportValidity();
  }}, el('label', {for: way ? 'way' : 'whom'}, asks), way, input, el('button', {}, 'Ask'));
}

// changes lists who enters and leaves a set from now on, each once. It uses a websocket: a
// browser has few other connections.
function changes(q, bar, note) {
  const list = el('ol', {class: 'members', role: 'log', 'aria-label': 'Changes', hidden: true});
  const what = 'Watch';
  let cursor = '', wait = 500, told = false;
  const stop = said => {
    if (watching) watching.close();
    watching = null;
    button.textContent = what;
    note.textContent = said;
  };
  const heard = m => {
    cursor = m.cursor || cursor;
    wait = 500;
    if (m.reset && told) list.prepend(el('li', {}, 'Changes may be missing here.'));
    told = true;
    for (const [way, members] of [['entered', m.entered], ['left', m.left]]) {
      for (const member of members || []) {
        for (const before of list.children) if (before.dataset.member === member) before.remove();
        list.prepend(row(member, el('span', {class: 'more'}, way + ', ' + new Date().toLocaleTimeString())));
      }
    }
    while (list.childElementCount > 100) list.lastChild.remove();
    list.hidden = !list.childElementCount;
    note.textContent = list.hidden ? 'Watching who enters and leaves: nothing has changed yet.' : 'Watching who enters and leaves.';
    nameThem(list, pending.signal);
  };
  const connect = () => {
    const w = new WebSocket(location.origin.replace(/^http/, 'ws') + '/xrpc/blue.skein.graph.subscribe?' + new URLSearchParams(cursor ? {set: q, cursor} : {set: q}));
    const mine = watching = {close: () => { w.onclose = null; w.close(); }};
    w.onmessage = e => {
      const m = JSON.parse(e.data);
      if (!m.error) heard(m);
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
  bar.append(button);
  return list;
}
