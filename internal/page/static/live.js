// The section Index status: the state of the index, once a second.
'use strict';

const rough = new Intl.NumberFormat(undefined, {notation: 'compact', maximumFractionDigits: 1}).format;
const bytes = n => n < 1 ? '–' : ['B', 'KiB', 'MiB', 'GiB', 'TiB'].reduce((s, u, i) => n >= 1024 ** i ? (n / 1024 ** i).toFixed(i && n / 1024 ** i < 10 ? 1 : 0) + ' ' + u : s, '');
const quarter = 900; // seconds
let eventRates = [], edgeRates = [];

// scale chooses the range of the axis, about three times the median, and its steps. Higher values,
// such as the burst at a start, would flatten the rest: they are cut and marked.
function scale(values) {
  const sorted = [...values].sort((a, b) => a - b), at = q => sorted[Math.floor(q * (sorted.length - 1))] || 0;
  const top = Math.min(at(1), [3 * at(0.5), 1.25 * at(0.95)].find(v => v > 0) || at(1)), bottom = at(0.05) < 0 ? Math.max(at(0), 1.25 * at(0.05)) : 0;
  const rough = Math.max(1, top - bottom) / 3, power = 10 ** Math.floor(Math.log10(rough)), step = Math.max(1, power * [1, 2, 5, 10].find(n => n * power >= rough));
  return {step, low: step * Math.floor(bottom / step), high: step * Math.max(1, Math.ceil(top / step)), most: at(1), least: at(0)};
}

const span = s => s < 120 ? s + ' s' : Math.round(s / 60) + ' min';

for (const id of ['events-chart', 'edges-chart']) {
  $(id).insertAdjacentHTML('beforeend', '<div class="plot" role="img"><svg viewBox="0 0 900 100" preserveAspectRatio="none" aria-hidden="true"><path class="grid"/><path class="area"/><path class="line"/></svg></div><p class="ages"></p>');
}

function draw(id, what, values) {
  const figure = $(id), plot = figure.querySelector('.plot'), {step, low, high, most, least} = scale(values);
  const seconds = Math.max(60, values.length); // on the axis
  const x = i => quarter * (seconds - values.length + i + 1) / seconds, y = v => Math.min(100, Math.max(0, 100 * (high - v) / (high - low)));
  const line = values.map((v, i) => (i ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(v).toFixed(1)).join('');
  const ticks = Array.from({length: Math.round((high - low) / step) + 1}, (_, i) => low + i * step);
  figure.querySelector('.grid').setAttribute('d', ticks.map(t => `M0 ${y(t)}H${quarter}`).join(''));
  figure.querySelector('.line').setAttribute('d', line);
  figure.querySelector('.area').setAttribute('d', values.length ? line + `V${y(0)}H${x(0).toFixed(1)}Z` : '');
  plot.querySelectorAll('span').forEach(e => e.remove());
  const label = (text, kind, side, at) => {
    const e = el('span', {class: kind, 'aria-hidden': 'true'}, text);
    e.style[side] = at + '%';
    plot.append(e);
  };
  for (const t of ticks) label(rough(t), 'tick', 'top', y(t));
  const peak = x(values.indexOf(most)) / quarter * 100;
  if (most > high) label('peak ' + rough(most) + ' (off the scale)', 'peak', peak > 50 ? 'right' : 'left', Math.min(peak, 100 - peak));
  figure.querySelector('.ages').replaceChildren(...[span(seconds) + ' ago', span(Math.round(seconds / 2)), 'now'].map(t => el('span', {}, t)));
  plot.setAttribute('aria-label', `${what} per second in the last ${span(seconds)}: ${number(least)} to ${number(most)}, now ${number(values.at(-1) || 0)}`);
}

function tile(name, value, note) {
  return el('div', {}, el('dt', {}, name), el('dd', {}, value, note ? el('small', {}, ' ' + note) : ''));
}

const states = {connecting: 'no connection to the relay', live: 'live', catchingUp: 'catching up', blocked: 'stopped: the operator must act (see the server’s log)', full: 'disk full: not indexing', off: 'answers queries; does not index', unknown: 'cannot read the index (see the server’s log)'};

function ago(seconds) {
  if (seconds < 1) return Math.max(0, seconds * 1000).toFixed(0) + ' ms';
  for (const [n, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min']]) if (seconds >= 2 * n) return Math.floor(seconds / n) + ' ' + unit;
  return seconds.toFixed(1) + ' s';
}

function live(m) {
  latest = m;
  if (m.history) { eventRates = m.history.events; edgeRates = m.history.edges; }
  else { eventRates.push(m.eventRate); edgeRates.push(m.edgeRate); }
  eventRates = eventRates.slice(-quarter);
  edgeRates = edgeRates.slice(-quarter);
  $('events-rate').textContent = number(m.eventRate);
  $('edges-rate').textContent = number(m.edgeRate);
  draw('events-chart', 'Events', eventRates);
  draw('edges-chart', 'Links', edgeRates);
  const state = states[m.state] || m.state;
  showState(m.state === 'live' || m.state === 'off' ? 'live' : m.state === 'blocked' || m.state === 'full' || m.state === 'unknown' ? 'bad' : '', state, m.state === 'live' && m.lag > 5 ? `, ${ago(m.lag)} behind the relay` : '');
  $('version').textContent = 'skein ' + m.version + ' · storage: ' + m.engine;
  if (m.edges && $('empty')) $('empty').remove();
  const c = m.counts;
  $('tiles').replaceChildren(
    tile('Follows, likes, …', rough(m.edges)), tile('Accounts', rough(c.accounts), c.hidden ? rough(c.hidden) + ' of them inactive' : ''),
    tile('Accounts with full history', rough(c.complete), m.members ? `of the ${number(m.members)} of this part of the network` : m.reason || `all of ${rough(c.accounts)}`),
    tile('Repos waiting to be fetched', m.waiting === undefined ? '–' : number(m.waiting)), tile('Accounts with missed events', number(c.desynchronized)),
    tile('Last event from the relay', m.cursor === undefined ? '–' : 'no. ' + number(m.cursor), m.cursorTime ? new Date(m.cursorTime).toLocaleString() : ''), tile('Disk', bytes(m.disk)),
    ...(m.audited === undefined ? [] : [tile('Repos compared with their hosts', number(m.audited), `${counted(m.differences || 0, 'record')} differed`)]));
  $('kinds').replaceChildren(...Object.entries(c.records).filter(([k, n]) => n && k !== 'listitem_list').sort((a, b) => b[1] - a[1]).map(([k, n]) => tile(k.replace(/^list(?=item|block)/, 'list '), rough(n))));
}

// showState shows the state of the index. A screen reader speaks when the state changes, not when
// the lag does.
function showState(how, state, lag = '') {
  document.querySelector('.dot').className = 'dot ' + how;
  if ($('state-announced').textContent !== state) $('state-announced').textContent = state;
  if ($('state-text').textContent !== state + lag) $('state-text').textContent = state + lag;
}

// listen asks for samples while this tab is visible, and for the history if it has missed some.
let timer = 0, newest = 0;

async function listen() {
  if (document.hidden) return;
  let wait = 1000;
  try {
    const m = await (await fetch('/live' + (newest ? '' : '?history'))).json();
    if (m.history || m.number === newest + 1) live(m);
    newest = m.history || m.number - newest < 2 ? m.number : 0;
  } catch {
    showState('bad', 'the server does not answer');
    newest = 0;
    wait = 3000;
  }
  clearTimeout(timer);
  timer = setTimeout(listen, wait);
}

document.addEventListener('visibilitychange', listen);
listen();
