// Errors, marked at their position, with corrections to click.
'use strict';

const plain = message => (message || '').replace(/^([a-z]+: )?at position \d+: /i, '');

// nearest returns the word of a list that a misspelled word may mean: they share half of their
// pairs of letters.
function nearest(word, list) {
  const alike = w => [...word].filter((c, i) => i && w.includes(word[i - 1] + c)).length;
  return list.filter(w => alike(w) >= (word.length - 1) / 2).sort((a, b) => alike(b) - alike(a))[0];
}

// closed adds the closing parentheses that an expression lacks at its end.
function closed(q) {
  let open = 0;
  for (const c of q) open += c === '(' ? 1 : c === ')' ? -1 : 0;
  return q + ')'.repeat(Math.max(0, open));
}

// placed returns the position of an error. The server gives it in bytes of an expression: the
// whole query, that of a feed, or a parameter of rank(…).
function placed(q, message) {
  const m = /^(?:([a-z]+): )?at position (\d+)/i.exec(message);
  if (!m || subjectOf(q) || /=\s*mix\(/.test(q)) return null; // each query of a mix has positions of its own
  const start = m[1] && new RegExp('\\b' + m[1] + '\\s*=\\s*').exec(q) || /^([\w.~:-]+\s*=\s*)?/.exec(q), before = start.index + start[0].length;
  const from = before + new TextDecoder().decode(new TextEncoder().encode(q.slice(before)).slice(0, m[2])).length;
  return {from, to: from + /^[^\s(),]*/.exec(q.slice(from))[0].length};
}

// mended returns the query that was probably meant, if it can tell. It relies on as little as
// possible of the wording of package query's messages: .ci/page/check.mjs tests it.
function mended(q, e, place) {
  const by = word => place && q.slice(0, place.from) + word + q.slice(place.to);
  let m;
  if (e.mend) return e.mend(q);
  if ((m = /(?:["“]([^"”]+)["”].*)?did you mean ([^\s?]+)\?/.exec(e.message))) return by(m[2]) || m[1] && q.replace(m[1], m[2]);
  if (place && /\bhandle\b.*@/.test(e.message)) return by('@' + q.slice(place.from, place.to));
  if (place && !q.slice(place.from).trim()) return closed(q);
  if ((m = /^parameter (\w+)\b.*?"([^"]+)".* one of (.+)$/.exec(e.message))) return q.replace(new RegExp('(\\b' + m[1] + '\\s*=\\s*)' + m[2]), '$1' + (nearest(m[2], m[3].split(/\W+/)) || m[2]));
}

// showError shows the error of a query, which is the value of an input. state returns the state of the page for another query.
function showError(out, q, e, input = $('q'), state = q => ({q})) {
  const message = e.message || String(e), place = placed(q, message), instead = mended(q, e, place), ask = instead && instead !== q;
  const box = el('div', {class: 'error', role: 'alert'}, el('b', {}, e.name === 'InvalidRequest' ? 'Invalid query: ' : e.name + ': '), (place ? plain(message) : message).replace(/; did you mean [^\s?]+\?$/, ask ? '.' : '$&'));
  const pre = place && el('pre', {tabindex: '0', 'aria-label': 'Position of the error'}, q + '\n' + ' '.repeat([...q.slice(0, place.from)].length) + '^');
  if (ask) box.append(el('p', {}, 'Did you mean ', link(state(instead), el('code', {}, instead)), '?'));
  if (pre) {
    const mark = to => input.setSelectionRange(place.from, to);
    mark(place.from);
    box.append(pre, el('button', {type: 'button', class: 'plain', onclick: () => { input.focus(); mark(place.to); }}, 'Go to the error'));
  }
  out.replaceChildren(box);
  if (pre) pre.scrollLeft = pre.scrollWidth * place.from / Math.max(1, q.length) - pre.clientWidth / 2;
}
