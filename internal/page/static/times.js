// Charts by time: a set by when its records were made, the growth of an account, and its week.
'use strict';

const buckets = {60: 'minute', 300: '5 minutes', 900: '15 minutes', 3600: 'hour', 21600: '6 hours', 86400: 'day', 604800: 'week', 2592000: '30 days'};

// picture returns a figure that draw fills when the answer for it is there. draw returns null if
// there is nothing to show.
function picture(name, caption, signal, draw) {
  const figure = el('figure', {class: 'picture ' + name, 'aria-busy': 'true'}, el('figcaption', {}, caption));
  const without = text => name === 'times' ? figure.remove() : figure.append(facts(text)); // the answer beside a chart says why
  draw(figure).then(parts => parts ? figure.append(...parts) : without('Nothing to show.')).then(() => nameThem(figure, signal)).catch(e => aborted(e) || without(sentence(plain(e.message)))).finally(() => figure.removeAttribute('aria-busy'));
  return figure;
}

// unsure marks a picture of an answer that is not exact. The answer beside it says why.
const unsure = ({incomplete, sampled}) => incomplete || sampled ? el('p', {class: 'warn'}, incomplete ? 'May be incomplete.' : 'An estimate from a sample.') : '';

const histogram = async (set, signal, more) => (await ask('blue.skein.graph.histogram', {set, ...more}, signal)).answer;

// byTime returns the chart of a set: how many of its members are of each hour, day or other bucket,
// or, if grown, of that and the ones before.
const byTime = (set, what, signal, grown) => picture(grown ? 'grown' : 'times', what, signal, async figure => {
  const answer = await histogram(set, signal);
  return answer.buckets.length > (grown ? 0 : 1) ? [...chart(figure.firstChild, answer, set, what, grown), unsure(answer)] : null;
});

// within limits a set to a window of time, instead of the one that it has.
const within = (set, since, until) => set.replace(/,\s*(since|until)\s*=[^,()]*/g, '').replace(/\)\s*$/, `, since=${since}, until=${until})`);

// steps returns the ticks of an axis from 0 to at least most.
function steps(most) {
  const least = Math.max(1, most / 5), power = 10 ** Math.floor(Math.log10(least)), step = power * [1, 2, 5, 10].find(n => n * power >= least);
  return Array.from({length: Math.ceil(most / step) + 1}, (_, i) => i * step);
}

// place sets properties of an element's style, in percent.
function place(e, percents) {
  for (const name in percents) e.style[name] = percents[name] + '%';
  return e;
}

// chart draws the answer of histogram. A part of it, chosen by dragging or with the keyboard, becomes
// the window of the query.
function chart(caption, answer, set, what, grown) {
  const all = answer.buckets, n = all.length, step = answer.bucketSeconds * 1000, unit = buckets[answer.bucketSeconds], before = (answer.earlier || 0) + (answer.undated || 0);
  const form = new Intl.DateTimeFormat(undefined, step < 864e5 ? {month: 'short', day: 'numeric', hour: 'numeric', ...step < 36e5 && {minute: 'numeric'}} : {dateStyle: 'medium', timeZone: 'UTC'});
  const start = i => new Date(Date.parse(all[0].start) + i * step), when = i => form.format(start(i));
  let at = n - 1, from = at, dragging = false, sum = before;
  const values = all.map(b => grown ? sum += b.count : b.count), most = Math.max(...values), last = number(values.at(-1)), ticks = steps(most), top = ticks.at(-1);
  const brush = el('span', {class: 'brush', hidden: true}), says = facts('Drag to choose a time, or use the arrow keys, Shift and Enter.');
  const chosen = () => [Math.min(at, from), Math.max(at, from) + 1], count = () => all.slice(...chosen()).reduce((s, b) => s + b.count, 0);
  const select = (to, extend) => {
    at = Math.min(n - 1, Math.max(0, to));
    if (!extend) from = at;
    const [low, high] = chosen();
    brush.hidden = false;
    place(brush, {left: 100 * low / n, width: 100 * (high - low) / n});
    says.textContent = `${when(low)}${high > low + 1 ? ' to ' + when(high) : ''}: ${number(count())}${grown ? ` new, ${number(values[high - 1])} then` : ''}`;
    plot.setAttribute('aria-valuenow', at);
    plot.setAttribute('aria-valuetext', says.textContent);
  };
  const apply = () => count() && go({q: within(set, ...chosen().map(i => start(i).toISOString().replace('.000', '')))}).then(atAnswer);
  const under = e => {
    const box = plot.getBoundingClientRect();
    return Math.floor(n * (e.clientX - box.left) / box.width);
  };
  const plot = el('div', {class: 'plot', role: 'slider', tabindex: '0', 'aria-valuemin': '0', 'aria-valuemax': n - 1, 'aria-valuenow': at,
    'aria-label': `${what} ${grown ? 'in all, ' : ''}per ${unit} from ${when(0)} to ${when(n - 1)}: peak ${number(most)}, latest ${last}. Shift with the arrow keys chooses a time, Enter shows it`,
    onkeydown: e => {
      const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: n - 1}[e.key];
      if (e.key === 'Enter') apply();
      if (to === undefined) return;
      e.preventDefault();
      select(to, e.shiftKey);
    },
    onfocus: () => select(at, true),
    onpointerdown: e => {
      plot.setPointerCapture(e.pointerId);
      dragging = true;
      select(under(e));
    },
    onpointermove: e => select(under(e), dragging),
    onpointercancel: () => { dragging = false; },
    onpointerup: () => {
      dragging = false;
      apply();
    }}, brush, ...ticks.map(t => place(el('span', {class: 'tick', 'aria-hidden': 'true'}, rough(t)), {bottom: 100 * t / top})));
  if (grown && n > 1) {
    const line = values.map((v, i) => `L${n * i / (n - 1)} ${top - v}`).join(''), path = (name, d) => drawn('path', {class: name, d});
    plot.prepend(drawn('svg', {viewBox: `0 0 ${n} ${top}`, preserveAspectRatio: 'none'}, path('area', `M0 ${top}${line}V${top}`), path('line', 'M' + line.slice(1))));
  } else {
    plot.prepend(el('div', {class: 'bars'}, ...values.map((v, i) => place(el('span', {title: `${when(i)}: ${number(v)}`}), {height: 100 * v / top}))));
  }
  caption.replaceChildren(...grown ? [el('b', {}, last), ' ' + what.toLowerCase()] : [`${what} per ${unit}`], el('small', {}, grown ? ` · ${number(sum - before)} of them since ${when(0)}` : ` · peak ${number(most)}${before ? ` · ${number(before)} earlier or undated` : ''}`));
  return [plot, el('p', {class: 'ages', 'aria-hidden': 'true'}, ...[...new Set([0, 1, 2, 3].map(i => Math.round(i * (n - 1) / 3)))].map(i => el('span', {}, when(i)))), says];
}

// week returns a map of the hours of the week in which an account acts.
const week = (x, signal) => picture('week', 'Its week by hour', signal, async () => {
  const sets = ['likes', 'reposts', 'posts', 'follows'].filter(s => setOf(s).name), hours = Array.from({length: 7}, () => Array(24).fill(0));
  const answers = await Promise.all(sets.map(s => histogram(`${s}(${x})`, signal, {since: '28d', bucket: '1h'})));
  for (const b of answers.flatMap(a => a.buckets)) {
    const at = new Date(b.start);
    hours[(at.getDay() + 6) % 7][at.getHours()] += b.count;
  }
  const most = Math.max(...hours.flat()), busy = hours.findIndex(d => d.includes(most));
  if (!most) return null;
  const day = i => new Date(2024, 0, 1 + i).toLocaleDateString(undefined, {weekday: 'short'}), hour = h => new Date(2024, 0, 1, h).toLocaleTimeString(undefined, {hour: 'numeric'});
  const label = (d, h) => `${day(d)}, ${hour(h)}: ${number(hours[d][h])}`, busiest = 'Busiest: ' + label(busy, hours[busy].indexOf(most));
  return [el('div', {class: 'hours', role: 'img', 'aria-label': busiest}, ...hours.flatMap((row, d) => [el('small', {}, day(d)), ...row.map((c, h) => place(el('span', {title: label(d, h)}), {opacity: c ? 15 + 85 * c / most : 6}))]), el('small'), ...[0, 6, 12, 18].map(h => el('small', {class: 'hour'}, hour(h)))),
    facts(`${busiest}. Counts ${sets.join(', ').replace(/, (\w+)$/, ' and $1')} of the last 28 days, in your time zone.`), unsure({incomplete: answers.some(a => a.incomplete)})];
});

// relative returns an element with the time since a date. Its title is the date.
function relative(time) {
  const seconds = (Date.now() - Date.parse(time)) / 1000, [n, unit] = [[31557600, 'year'], [2629800, 'month'], [86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']].find(([n]) => Math.abs(seconds) >= n) || [1, 'second'];
  return el('time', {datetime: time, title: new Date(time).toLocaleString(), class: 'more'}, new Intl.RelativeTimeFormat(undefined, {numeric: 'auto'}).format(-Math.floor(seconds / n), unit));
}
