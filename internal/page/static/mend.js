// Errors, marked at their position, with corrections to click.
'use strict';

const plain = message => (message || '').replace(/^([a-z]+: )?at position \d+: /i, '');

// nearest returns the word of a list that a misspelled word may mean: they share half of their
// pairs of letters.
function nearest(word, list) {
  const alike = w => [...word].filter((c, i) => i && w.includes(word[i - 1] + c)).length, longer = w => Math.abs(w.length - word.length);
  return list.filter(w => alike(w) >= (word.length - 1) / 2).sort((a, b) => alike(b) - alike(a) || longer(a) - longer(b))[0];
}

// placed returns the position of an error. The server gives it in bytes of an expression: the
// whole query, or that of a feed.
function placed(q, message) {
  const m = /^(?:[a-z]+: )?at position (\d+)/i.exec(message);
  if (!m || subjectOf(q) || /=\s*mix\(/.test(q)) return null; // each query of a mix has positions of its own
  const before = /^([\w.~:-]+\s*=\s*)?/.exec(q)[0].length, from = before + new TextDecoder().decode(new TextEncoder().encode(q.slice(before)).slice(0, m[1])).length;
  return {from, to: from + /^[^\s(),]*/.exec(q.slice(from))[0].length};
}

// corrections return the query that was probably meant; the first that has one counts. They rely on as little as
// possible of the wording of package query's messages: .ci/page/check.mjs tests it.
const corrections = [
  q => (config.handles || q[0] === '@') && /^@?[a-z0-9-]+$/i.test(q) && `@${q.replace('@', '')}.bsky.social`, // half a handle
  (q, message, place) => { // a word that the server proposes
    const [, wrong, right] = /(?:["“]([^"”]+)["”].*)?did you mean ([^\s?]+)\?/.exec(message) || [];
    const instead = right && (!place ? wrong && q.replace(wrong, right) : (q[place.to] === '(' || /=\s*$/.test(q.slice(0, place.from))) && q.slice(0, place.from) + right + q.slice(place.to));
    return instead && (meant(instead) || instead);
  },
  meant,
];

// mended returns another query that was probably meant, if it can tell.
const mended = (q, e, place) => e.name === 'InvalidRequest' ? corrections.map(c => c(q, e.message, place)).find(instead => instead && instead !== q) : null;

// showError shows the error of a query, which is the value of an input. state returns the state of the page for another query.
function showError(out, q, e, input = $('q'), state = q => ({q})) {
  const message = e.message || String(e), place = placed(q, message), instead = mended(q, e, place);
  const box = el('div', {class: 'error', role: 'alert'}, el('b', {}, e.name === 'InvalidRequest' ? 'Invalid query: ' : e.name + ': '), (place ? plain(message) : message).replace(/; did you mean [^\s?]+\?$/, instead ? '.' : '$&'));
  const pre = place && el('pre', {tabindex: '0', 'aria-label': 'Position of the error'}, q + '\n' + ' '.repeat([...q.slice(0, place.from)].length) + '^');
  if (instead) box.append(el('p', {}, 'Did you mean ', link(state(instead), el('code', {}, instead)), '?'));
  if (pre) {
    const mark = to => input.setSelectionRange(place.from, to);
    mark(place.from);
    box.append(pre, action('Go to the error', () => { input.focus(); mark(place.to); }));
  }
  out.replaceChildren(box);
  if (pre) pre.scrollLeft = pre.scrollWidth * place.from / Math.max(1, q.length) - pre.clientWidth / 2;
}
