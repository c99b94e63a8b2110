// The chart of a set by time: how many of its records are in each hour, day or other bucket.
'use strict';

const buckets = {60: 'minute', 300: '5 minutes', 900: '15 minutes', 3600: 'hour', 21600: '6 hours', 86400: 'day', 604800: 'week', 2592000: '30 days'};

// byTime returns a chart, which is hidden until the server has counted. A bar links to its members.
function byTime(set, what, signal) {
  const figure = el('figure', {class: 'times', hidden: true});
  ask('blue.skein.graph.histogram', {set}, signal).then(({answer}) => {
    const all = answer.buckets, last = all.at(-1), most = Math.max(...all.map(b => b.count)), step = answer.bucketSeconds * 1000;
    if (all.length < 2) return;
    const when = step < 864e5 ? t => new Date(t).toLocaleString(undefined, {dateStyle: 'short', timeStyle: 'short'}) : t => new Date(t).toLocaleDateString(undefined, {timeZone: 'UTC'});
    const end = b => new Date(Date.parse(b.start) + step).toISOString();
    const bars = el('div', {class: 'bars', 'aria-hidden': 'true'});
    figure.setAttribute('aria-label', `${what} per ${buckets[answer.bucketSeconds]} from ${when(all[0].start)} to ${when(last.start)}: peak ${number.format(most)}, latest ${number.format(last.count)}`);
    for (const b of all) {
      const text = `${when(b.start)}: ${number.format(b.count)}`, q = /(since|until)=/.test(set) ? null : set.replace(/\)\s*$/, `, since=${b.start}, until=${end(b)})`);
      const bar = q && b.count ? link({q}) : el('span');
      bar.title = text;
      bar.tabIndex = -1; // the list below has all of them
      bar.style.height = 100 * b.count / most + '%';
      bars.append(bar);
    }
    figure.replaceChildren(el('figcaption', {}, `${what} per ${buckets[answer.bucketSeconds]}`, el('small', {}, ` · peak ${number.format(most)}${answer.earlier ? ` · ${number.format(answer.earlier)} earlier than ${when(all[0].start)}` : ''}`)),
      bars, el('p', {class: 'ages'}, el('span', {}, when(all[0].start)), el('span', {}, when(last.start))));
    figure.hidden = false;
  }).catch(() => { /* the answer beside it shows the error */ });
  return figure;
}
