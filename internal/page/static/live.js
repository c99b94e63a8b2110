// What the index is doing now: drawn from what the server sends once a second.
'use strict';


const rough = new Intl.NumberFormat(undefined, {notation: 'compact', maximumFractionDigits: 1});
const bytes = n => n < 1 ? '–' : ['B', 'KiB', 'MiB', 'GiB', 'TiB'].reduce((s, u, i) => n >= 1024 ** i ? (n / 1024 ** i).toFixed(i && n / 1024 ** i < 10 ? 1 : 0) + ' ' + u : s, '');
const quarter = 900; // seconds
let eventRates = [], edgeRates = [];

function draw(id, values) {
  // A burst, as of what lay behind at the start, would make all else flat: it is cut.
  const sorted = [...values].sort((a, b) => a - b), at = q => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] || 0;
  const low = Math.min(0, at(0.1)), high = Math.max(1, Math.min(at(1), 3 * at(0.9)));
  const span = Math.max(60, values.length); // seconds shown
  const x = i => (quarter * (span - values.length + i + 1) / span).toFixed(1);
  const y = v => Math.min(79, Math.max(1, 78 - 76 * (v - low) / (high - low))).toFixed(1);
  const line = values.map((v, i) => (i ? 'L' : 'M') + x(i) + ' ' + y(v)).join('');
  const svg = $(id);
  svg.querySelector('.line').setAttribute('d', line);
  svg.querySelector('.area').setAttribute('d', values.length ? line + `L${quarter} ${y(0)}L${x(0)} ${y(0)}Z` : '');
}

function tile(name, value, note) {
  return el('div', {}, el('dt', {}, name), el('dd', {}, value, note ? el('small', {}, ' ' + note) : ''));
}

const states = {connecting: 'no connection to the relay', live: 'live', catchingUp: 'catching up', blocked: 'blocked: an operator must decide', off: 'only answering', unknown: 'the index cannot be read: see the server’s log'};

function ago(seconds) {
  if (seconds < 1) return Math.max(0, seconds * 1000).toFixed(0) + ' ms';
  for (const [n, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) if (seconds >= 2 * n) return Math.floor(seconds / n) + ' ' + unit;
  return seconds.toFixed(1) + ' s';
}

function live(m) {
  indexing = m.state !== 'off';
  if (m.history) { eventRates = m.history.events; edgeRates = m.history.edges; }
  else { eventRates.push(m.eventRate); edgeRates.push(m.edgeRate); }
  eventRates = eventRates.slice(-quarter);
  edgeRates = edgeRates.slice(-quarter);
  $('events-rate').textContent = number.format(m.eventRate);
  $('edges-rate').textContent = number.format(m.edgeRate);
  draw('events-chart', eventRates);
  draw('edges-chart', edgeRates);
  const state = states[m.state] || m.state;
  tell(m.state === 'live' || m.state === 'off' ? 'live' : m.state === 'blocked' || m.state === 'unknown' ? 'bad' : '', state, m.state === 'live' && m.lag !== undefined ? `, ${ago(m.lag)} behind` : '');
  $('version').textContent = 'skein ' + m.version + ', ' + m.engine;
  const c = m.counts;
  $('tiles').replaceChildren(
    tile('Edges', rough.format(m.edges)), tile('Accounts', rough.format(c.accounts), c.hidden ? rough.format(c.hidden) + ' not active' : ''),
    tile('Past indexed', c.accounts ? (100 * c.complete / c.accounts).toFixed(c.complete < c.accounts ? 1 : 0) + ' %' : '–', c.complete ? `of ${rough.format(c.accounts)} accounts` : 'it is not fetched'),
    tile('Repos to fetch', m.waiting === undefined ? '–' : number.format(m.waiting)), tile('With gaps', number.format(c.desynchronized), 'accounts that something was missed of'),
    tile('Cursor', m.cursor === undefined ? '–' : number.format(m.cursor), m.cursorTime ? new Date(m.cursorTime).toLocaleString() : ''), tile('Disk', bytes(m.disk)));
  $('kinds').replaceChildren(...Object.entries(c.records).filter(([k, n]) => n && k !== 'listitem_list').sort((a, b) => b[1] - a[1]).map(([k, n]) => tile(k, rough.format(n))));
}

// tell says in what state the index is. A screen reader hears it when that changes, and not
// how far behind it is every second.
function tell(how, state, lag = '') {
  document.querySelector('.dot').className = 'dot ' + how;
  if ($('state-said').textContent !== state) $('state-said').textContent = state;
  if ($('state-text').textContent !== state + lag) $('state-text').textContent = state + lag;
}

// listen hears from the server while this tab is visible: a browser has six connections to a
// server, for all of its tabs.
let source = null;

function listen() {
  if (document.hidden || source) return;
  const s = source = new EventSource('/live');
  s.onmessage = e => live(JSON.parse(e.data));
  s.onerror = () => {
    tell('bad', 'the server does not answer');
    if (s.readyState !== EventSource.CLOSED) return;
    if (source === s) source = null;
    setTimeout(listen, 3000);
  };
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return listen();
  if (source) source.close();
  source = null;
});
listen();
