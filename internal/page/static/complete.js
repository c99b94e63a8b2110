// Completion: what fits at the caret, the sentences of the home page, the list of sets, and the start of the page.
'use strict';

// parts are the options, with their meanings and usual values.
const ages = ['24h', '7d', '30d'];
const parts = {
  since: ['a date, a time, or an age such as 24h: only follows, likes, … made from then on', ages], until: ['only those made before it', ages], of: ['the set whose likes, follows, … are counted'],
  via: ['what to count: likes, follows, …'], by: ['the order: by count, share of each one’s total, lift (vs chance) or score', ['count', 'share', 'lift', 'score']], except: ['a set to leave out'],
  min: ['leave out results with a lower count'], top: ['number of results to keep'], weigh: ['count by the scores in of=rank(…)', ['score']], damp: ['0 to 1: push down what is popular with everyone', ['0.3', '0.5']],
  decay: ['age at which a like, follow, … counts half', ['6h', '7d']], subjectsSince: ['only posts created from then on', ages], exact: ['no estimates', ['true']], seed: ['another number: another sample'], on: ['what is labeled', ['accounts', 'records']],
};

function listSets() {
  $('what').replaceChildren(...config.sets.map(({name, meaning}) => el('div', {}, el('dt', {}, action(name + '(…)', () => {
    const input = $('q'), inside = /[(,=]\s*$/.test(input.value.slice(0, input.selectionStart)); // else replace all
    input.focus();
    put(input, inside ? input.selectionStart : 0, inside ? input.selectionEnd : input.value.length, name, true);
  })), el('dd', {}, meaning))));
}

// put replaces a part of an input. The caret is then inside the parentheses of a call.
function put(input, from, to, text, call) {
  const rest = input.value.slice(to);
  input.value = input.value.slice(0, from) + text + (call && !rest.startsWith('(') ? '()' : '') + rest;
  input.setSelectionRange(from + text.length + (call ? 1 : 0), from + text.length + (call ? 1 : 0));
  input.dispatchEvent(new Event('input'));
}

// wanted returns what fits at the end of the innermost of some calls: a kind of argument, the type of its members,
// and the options that are not there yet.
function wanted(calls) {
  const {name, texts, key} = calls.at(-1), {args, options} = slots(name);
  const kind = key ? /^(of|except)$/.test(key) ? 'set' : key : name ? slot(name, texts.length - 1) : 'set';
  const before = () => texts.slice(0, -1).map(t => tree(t.replace(/^\s*\w+\s*=/, ''))).map(n => n && typeOf(n)).find(Boolean);
  const type = {accounts: 'account', records: 'record', via: before() || 'account'}[kind] || kind === 'set' && name && !key && (before() || wanted(calls.slice(0, -1)).type);
  return {kind, type, options: key || texts.length <= args.length && !/…/.test(args.at(-1)) ? [] : options.filter(o => !texts.some(t => t.trim().startsWith(o)) && (calls.length < 3 || !/^(by|subjectsSince)=/.test(o)))};
}

// proposals returns what fits at the caret of a text, all of it or what begins like the word there: texts, their
// notes, and whether they are calls. It calls later if there are more.
function proposals(text, caret, all, later) {
  const [word] = /[^\s(),="]*$/.exec(text.slice(0, caret)), from = caret - word.length, calls = [{name: '', texts: [''], key: ''}];
  let last = '';
  for (const [w] of text.slice(0, from).replace(/^[\w.~:-]+\s*=/, '').matchAll(/"(?:[^"\\]|\\.)*"?|[(),=]|[^\s(),="]+|\s+/g)) {
    if (w === ')' && calls.length > 1) calls.pop();
    const c = calls.at(-1);
    for (const outer of calls) if (w !== ',' || outer !== c) outer.texts[outer.texts.length - 1] += w;
    if (w === '(') calls.push({name: last, texts: [''], key: ''});
    else if (w === ',') Object.assign(c, {key: ''}).texts.push('');
    else if (w === '=') c.key = last;
    last = w.trim() && w;
  }
  const {kind, type, options} = wanted(calls), noted = (list, call) => list.map(s => [s.name, s.meaning, call]);
  const found = /^(account|subject)$/.test(kind) || word[0] === '@' ? people(word, later)
    : kind === 'via' ? noted(config.sets.filter(s => kindOf(s.of) === type || type === 'record' && /^records /.test(s.takes)))
    : /^(set|accounts|records|ranking)$/.test(kind) ? word || all ? noted(config.sets.filter(s => (kind !== 'ranking' || /ranking|via/.test(s.takes)) && (!type || !s.members || kindOf(s.members) === type)), true) : []
    : (parts[kind]?.[1] || (kind === '1|2' ? ['1', '2'] : recent.of(kind))).map(v => [v]);
  if (word || all) found.push(...options.map(o => [o, parts[o.slice(0, -1)][0]]));
  return {from, to: caret + /^[^\s(),="]*/.exec(text.slice(caret))[0].length, list: found.filter(p => p[0] !== word && (p.person || p[0].toLowerCase().startsWith(word.toLowerCase())))};
}

// recent has the accounts, posts and lists of the last queries.
const recent = {
  kept: stored('recent'),
  of: kind => (recent.kept.get() || '').split(' ').filter(n => n && [subjectOf(n)?.kind, 'subject'].includes(kind)),
  add: q => recent.kept.set([...new Set([...q.split(literals).filter((_, i) => i % 2), ...recent.of('subject')])].slice(0, 99).join(' ')),
};

let seeking = 0; // a timer
const sought = new Set();

// people proposes accounts for the start of a handle or a name: those that this page has seen, and if names are
// shown, those that their service finds.
function people(word, later) {
  const w = word.replace('@', '').toLowerCase(), all = new Map(recent.of('account').map(name => [name, '']));
  for (const [did, handle] of handles) all.set(...config.handles ? [handle, ''] : [did, handle]);
  for (const p of profiles.values()) if (p) all.set(...config.handles ? ['@' + p.handle, p.displayName] : [p.did, '@' + p.handle]);
  clearTimeout(seeking);
  if (w.length > 1 && !sought.has(w) && described()) {
    seeking = setTimeout(async () => {
      sought.add(w);
      try {
        const found = await (await fetch((config.people ? '/xrpc/' : 'https://public.api.bsky.app/xrpc/') + 'app.bsky.actor.searchActorsTypeahead?limit=8&q=' + encodeURIComponent(w), {referrerPolicy: 'no-referrer'})).json();
        found.actors.forEach(keepProfile);
        later();
      } catch { /* proposals are a help */ }
    }, 150);
  }
  const at = p => ` ${p.join(' ').replace('@', '').toLowerCase()}`.search(RegExp('[ @:-]' + w.replace(/\W/g, '.')));
  return [...all].filter(p => at(p) >= 0).sort((a, b) => at(a) - at(b)).slice(0, 8).map(p => Object.assign(p, {person: true}));
}

// subjects proposes what recent queries had for a whole input that takes a subject of a kind, or people.
const subjects = kind => (text, _, all, later) => ({from: 0, to: text.length, list: kind() === 'account' ? people(all ? '' : clean(text), later) : text ? [] : recent.of(kind()).map(r => [r])});

// completes makes an input propose what propose returns for its text and its caret. It returns a function that ends that.
function completes(input, propose) {
  const id = input.id + '-words', box = el('ul', {id, class: 'menu', role: 'listbox', 'aria-label': 'Proposals', hidden: true});
  let found = {list: []}, on = -1;
  const offer = (list, at = -1) => {
    found = list;
    on = at;
    box.replaceChildren(...found.list.map(([text, note], i) => el('li', {id: id + i, role: 'option', 'aria-selected': String(i === on), onmousedown: e => { e.preventDefault(); accept(i); }}, text, note && el('small', {}, note))));
    box.hidden = !found.list.length;
    input.setAttribute('aria-expanded', String(!box.hidden));
    if (on < 0) return input.removeAttribute('aria-activedescendant');
    input.setAttribute('aria-activedescendant', id + on);
    box.children[on].scrollIntoView({block: 'nearest'});
  };
  const close = () => offer({list: []}), look = all => document.activeElement === input && offer(propose(input.value, input.selectionStart, all === true, look));
  const accept = i => {
    const [text, , call] = found.list[i];
    put(input, found.from, found.to, text, call);
    if (!call && !text.endsWith('=')) close();
  };
  attribute(input, {role: 'combobox', 'aria-expanded': 'false', 'aria-controls': id, 'aria-autocomplete': 'list', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false'});
  input.addEventListener('input', look);
  input.addEventListener('blur', close);
  input.addEventListener('keydown', e => {
    const n = found.list.length, chosen = e.key === 'Enter' ? on : e.key === 'Tab' && !e.shiftKey && found.to > found.from ? Math.max(0, on) : -1;
    if (n === 0) return e.key === 'ArrowDown' && look(true);
    if (chosen >= 0) accept(chosen);
    else if (e.key === 'ArrowDown') offer(found, (on + 1) % n);
    else if (e.key === 'ArrowUp') offer(found, (on <= 0 ? n : on) - 1);
    else if (e.key === 'Escape') close();
    else return;
    e.preventDefault();
  });
  input.after(box);
  return close;
}

// worded returns an expression as words and inputs, null if it has no words for it.
function worded({name, args, options: {of, via, since, ...more}}) {
  const {which} = setOf(name), between = {intersect: ' and ', union: ' or ', except: ' but not those that '}[name], all = of ? [worded(of)] : args.map(a => a.name ? worded(a) : which && a.kind && [which + ' ', field(a)]);
  if (Object.keys(more).length || !all.every(Boolean) || !(between || which || of && setOf(via.text).heading)) return null;
  return [...of ? [setOf(via.text).heading + ' those that '] : [], ...all.flatMap((w, i) => i ? [between, ...w] : w), ...since ? [`, ${/^\d+\w$/.test(since.text) ? 'in the last' : 'since'} ${since.text}`] : []];
}

// field is an input for an account, a post or a list in an expression.
function field(node) {
  const input = el('input', {id: 'field-' + fields++, 'aria-label': node.kind, ...node.kind === 'account' ? {value: node.text} : {placeholder: 'this ' + node.kind}, onchange: () => {
    const text = clean(input.value), s = subjectOf(text);
    input.setCustomValidity(!text || s && s.kind === node.kind ? '' : accepted(node.kind));
    if (s) node.text = s.name;
  }}), box = el('span', {class: 'box'}, input);
  completes(input, subjects(() => node.kind));
  return box;
}

let fields = 0;

// editable returns a form with an expression as a sentence, null if it has no words for it.
function editable(q) {
  const n = tree(q), words = n && n.name && worded(n);
  return words && el('form', {class: 'sentence', onsubmit: e => { e.preventDefault(); go({q: printed(n)}).then(atAnswer); }}, n.name === 'rank' ? '' : typeOf(n) === 'account' ? 'Accounts that ' : 'Records that ', ...words, ' ', el('button', {class: 'plain'}, 'Show'));
}

// ---- start ----

$('ask').addEventListener('submit', e => {
  e.preventDefault();
  hide();
  const q = clean($('q').value);
  go(isLine(q) ? feedState(q) : {q});
});
const hide = completes($('q'), proposals);
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

const keep = stored('names'); // the viewer's choice about names
$('names').addEventListener('change', () => {
  keep.set($('names').checked ? 'yes' : 'no');
  show();
});
setInterval(lookForExamples, 5000);
learnConfig().then(listSets).then(show);
