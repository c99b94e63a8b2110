// Completion of set names, the list of sets, and the start of the page.
'use strict';

const parts = [['since=', 'a date, a time, or an age such as 24h: only follows, likes, … made from then on'], ['until=', 'a date, a time, or an age: only follows, likes, … made before it'], ['of=', 'the set whose likes, follows, … are counted'], ['via=', 'what to count: likes, follows, …'], ['by=', 'sort by count, share (of each one’s total), lift (vs chance) or score'], ['except=', 'a set to leave out'], ['min=', 'leave out results with a lower count'], ['top=', 'number of results to keep (only for a rank inside another expression)'], ['weigh=', 'only “score”: results of a rank(…) in of= with a higher score count more'], ['damp=', '0 to 1: how far to push down results that are popular with everyone (0: not at all)'], ['decay=', 'age at which a like, follow, … counts half, such as 6h or 7d'], ['subjectsSince=', 'like since=, but for when the post was created']];

let words = []; // names of sets, with their meanings
const values = {via: [], by: [['count', ''], ['share', ''], ['lift', ''], ['score', '']], weigh: [['score', '']]};

function listSets() {
  words = config.sets.map(s => [s.name, s.meaning]);
  values.via = config.sets.filter(s => s.via).map(s => [s.name, s.meaning]);
  $('what').replaceChildren(...words.map(([word, what]) => el('div', {}, el('dt', {}, el('button', {type: 'button', class: 'plain', onclick: () => start(word)}, word + '(…)')), el('dd', {}, what))));
}

// start starts an expression with a word, or adds it to the expression.
function start(word) {
  const input = $('q');
  input.focus();
  completion.matches = [[word]];
  const inside = /[(,=]\s*$/.test(input.value.slice(0, input.selectionStart)); // else replace all
  completion.from = inside ? input.selectionStart : 0;
  completion.to = inside ? input.selectionEnd : input.value.length;
  accept(0);
}

const completion = {matches: [], at: -1, from: 0, to: 0};

// complete proposes words for the word at the caret, or all words if all is true.
function complete(all) {
  const input = $('q'), before = input.value.slice(0, input.selectionStart), after = input.value.slice(input.selectionStart);
  const m = /(^|[(,=\s])([A-Za-z_]*)$/.exec(before), tail = /^[A-Za-z_]*/.exec(after)[0];
  const value = m && /(via|by)\s*=\s*$/.exec(before.slice(0, before.length - m[2].length));
  const from = value ? values[value[1]].map(v => [...v, '']) : [...words, ...(before.includes('(') ? parts : [])];
  completion.matches = m && (m[2] || value || all === true) ? from.filter(w => w[0].toLowerCase().startsWith(m[2].toLowerCase()) && w[0] !== m[2] + tail) : [];
  completion.from = m ? before.length - m[2].length : 0;
  completion.to = before.length + tail.length;
  completion.at = -1;
  drawCompletion();
}

function drawCompletion() {
  const box = $('words'), input = $('q');
  box.replaceChildren(...completion.matches.map(([word, what], i) => el('li', {id: 'word-' + i, role: 'option', 'aria-selected': String(i === completion.at), onmousedown: e => { e.preventDefault(); accept(i); }}, word, el('small', {}, what))));
  box.hidden = completion.matches.length === 0;
  input.setAttribute('aria-expanded', String(!box.hidden));
  const on = $('word-' + completion.at);
  if (on) input.setAttribute('aria-activedescendant', on.id);
  else input.removeAttribute('aria-activedescendant');
  if (on) on.scrollIntoView({block: 'nearest'});
}

function accept(i) {
  const input = $('q'), rest = input.value.slice(completion.to);
  const word = completion.matches[i][0], call = !word.endsWith('=') && completion.matches[i].length < 3; // values have no parentheses
  const opened = call && rest.startsWith('(');
  input.value = input.value.slice(0, completion.from) + word + (opened ? '' : call ? '()' : '') + rest;
  const caret = completion.from + word.length + (call ? 1 : 0);
  input.setSelectionRange(caret, caret);
  hideCompletion();
}

function hideCompletion() {
  completion.matches = [];
  drawCompletion();
}

function keys(e) {
  const n = completion.matches.length;
  if (e.key === 'ArrowDown' && n === 0) complete(true);
  else if (n === 0) return;
  else if (e.key === 'ArrowDown') completion.at = (completion.at + 1) % n;
  else if (e.key === 'ArrowUp') completion.at = (completion.at <= 0 ? n : completion.at) - 1;
  else if (e.key === 'Tab' && !e.shiftKey) return e.preventDefault(), accept(Math.max(0, completion.at));
  else if (e.key === 'Enter' && completion.at >= 0) return e.preventDefault(), accept(completion.at);
  else if (e.key === 'Escape') completion.matches = [];
  else return;
  e.preventDefault();
  drawCompletion();
}

// ---- start ----

$('ask').addEventListener('submit', e => {
  e.preventDefault();
  hideCompletion();
  const q = clean($('q').value);
  go(isLine(q) ? feedState(q) : {q});
});
$('q').addEventListener('input', complete);
$('q').addEventListener('keydown', keys);
$('q').addEventListener('blur', hideCompletion);
document.addEventListener('click', e => {
  const a = e.target.closest('a[data-link]');
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  visit(a.getAttribute('href')).then(atAnswer);
});
history.scrollRestoration = 'manual';
addEventListener('popstate', async e => {
  if (location.search === shown) return;
  await show();
  scrollTo(0, (e.state && e.state.y) || 0);
});

// keep stores the viewer's choice about names, if the browser allows it.
const keep = {
  get: () => { try { const kept = localStorage.getItem('names'); return kept && kept === 'yes'; } catch { return null; } },
  set: yes => { try { localStorage.setItem('names', yes ? 'yes' : 'no'); } catch { /* it then lasts for this page only */ } },
};
$('names').addEventListener('change', () => {
  keep.set($('names').checked);
  show();
});
setInterval(lookForExamples, 5000);
learnConfig().then(listSets).then(show);
