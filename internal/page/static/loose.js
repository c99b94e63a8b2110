// Reads text that is nearly an expression: “A and B”, “followers of @alice”, a post where an account belongs. The
// sets, and the verbs of sentences about them, come from the server (package page, Set).
'use strict';

const fillers = /^(an?|the|of|by|to|all|everybody|accounts?|people|whom?|that|which|those|they|both|is|are|was|were|ha[sd]|have|do|does|did|in|posts?|lists?|also)$/;
const joins = {and: 'intersect', but: 'intersect', '&': 'intersect', '+': 'intersect', or: 'union', '|': 'union', not: 'except', without: 'except', except: 'except', minus: 'except', '-': 'except', 'don\'t': 'except', 'doesn\'t': 'except'};
const usual = {account: 'followers', list: 'listed', post: 'likers'}; // the set of a subject that stands alone

// slots returns what a set or an operator takes: its arguments and its options. An argument with … repeats.
function slots(name) {
  const s = setOf(name), all = s.takes ? s.takes.split(' ') : s.of ? [s.of, 'since=', 'until='] : [];
  return {args: all.filter(a => !a.endsWith('=')), options: all.filter(a => a.endsWith('='))};
}

// slot returns what belongs at a place among the arguments.
function slot(name, i) {
  const {args} = slots(name), last = args.at(-1);
  return (args[i] || last && last.endsWith('…') && last || '').replace('…', '');
}

// typeOf returns what the members of a node are: account or record, if it can tell.
const kindOf = of => of && (of === 'account' ? of : 'record');
const typeOf = n => n.name ? kindOf(setOf(n.options.via ? n.options.via.text : n.name).members) || n.args.map(typeOf).find(Boolean) : kindOf(n.kind);

const printed = n => n.name ? `${n.name}(${[...n.args.map(printed), ...Object.entries(n.options).map(([k, v]) => k + '=' + printed(v))].join(', ')})` : n.text;

const unread = new Error('not understood');
const no = () => { throw unread; };

// setNamed returns the set that a word names, perhaps misspelled.
const setNamed = (word, guess) => config.sets.find(s => s.name.toLowerCase() === word.toLowerCase())?.name || guess && nearest(word.toLowerCase(), config.sets.map(s => s.name));

// verbs returns the sets of each verb: of those who do it to a subject, and of what a subject does it to.
function verbs() {
  const all = {};
  for (const {name, inverse, which, deed} of config.sets.filter(s => s.which && s.inverse)) {
    const verb = which.replace(/^are | by$/g, '');
    for (const word of [verb, deed]) all[word] ||= / by$/.test(which) ? [inverse, name] : deed ? [name, inverse] : [name, name];
  }
  return all;
}

// subjectIn returns the account or the record that a word is.
function subjectIn(word = '') {
  const bare = word.replace(/^["'‘]|["'’]$|['’]s$/g, '');
  const s = bare === '$viewer' ? {kind: 'account', name: bare} : /^([\d.]+\w?|@+)$/.test(bare) ? null : subjectOf(/^@[\w-]+$/.test(bare) ? bare + '.bsky.social' : bare);
  return s && {kind: s.kind, text: word[0] === '"' && s.kind !== 'account' ? word : s.name, owner: s.owner};
}

// make makes a node of a set or an operator, whose arguments it turns into what belongs there.
function make(name, args, options = {}) {
  const {of, which, inverse} = setOf(name), [x] = args, fits = s => s.of === x.kind || s.of === 'record' && x.kind !== 'account';
  const setIn = (a, bare) => a.name ? a : make(bare || usual[a.kind] || no(), [a]), owner = a => subjectIn(a.owner || '@' + (a.text || no())) || no();
  if (of) {
    if (args.length !== 1) return make('intersect', args.map(a => make(name, [a], options)));
    if (x.name) return x.op ? x : make('rank', [], {of: x, via: {text: name}, ...options});
    const other = fits(setOf(name)) ? {name} : x.kind && config.sets.find(s => fits(s) && (s.which === which || s.name === inverse));
    return other ? {name: other.name, args, options} : of === 'account' ? {name, args: [owner(x)], options} : no();
  }
  if (options.of) options.of = setIn(options.of, options.of.kind === 'account' && 'follows');
  if (options.except) options.except = setIn(options.except, 'members');
  args = args.map((a, i) => {
    const wanted = slot(name, i) || no();
    if (/^(set|accounts|records|ranking)$/.test(wanted)) a = setIn(a, wanted === 'accounts' && 'members');
    return wanted === 'accounts' && typeOf(a) === 'record' ? make('authors', [a]) : wanted === 'account' && a.kind !== wanted ? owner(a) : a;
  });
  if (/set/.test(slot(name, 9)) && args.some(a => typeOf(a) === 'account')) args = args.map(a => typeOf(a) === 'record' ? make('authors', [a]) : a);
  return {name, args, options};
}

// read returns the tree of a text.
function read(text) {
  const t = (text.match(/"(?:[^"\\]|\\.)*"|[(),=]|[^\s(),="“”]+/g) || []).map(w => w.replace(/[?!.;]+$/, '')), does = verbs();
  const at = () => (t[i] || '').toLowerCase().replace('’', '\''), isJoin = () => Object.hasOwn(joins, at()) && t[i + 1] !== '(', known = () => t[i + 1] !== '(' && (does[at()] || setNamed(at()));
  let i = 0, depth = 0, sentence = false; // in a sentence, “follows” is a verb

  // choose returns the set that a word means: a name, or a verb, whose subject comes first if it is passive.
  const choose = (word, passive) => does[word] && (sentence || !setNamed(word)) ? does[word][passive ? 1 : 0] : setNamed(word) || no();

  // expression reads sets with words such as “and” between them. A subject after such a word goes into the set before it.
  function expression(leaf) {
    for (let n = term(); ;) {
      if (!isJoin()) return n;
      let op = joins[at()];
      for (i++; isJoin() || /^(who|that|do|does|are)$/.test(at()); i++) if (joins[at()] === 'except') op = 'except';
      for (let last = n; last?.name; last = last.args.at(-1)) leaf = last.name;
      const whole = x => !x.name && /^(account|list|post|record)$/.test(leaf && slot(leaf, 0)) ? make(leaf, [x]) : x;
      n = {...make(op, [...n.op === op ? n.args : [whole(n)], whole(term())]), op};
    }
  }

  // term reads one set: a call, or a phrase.
  function term() {
    let word = null, by = false;
    const whole = x => word ? make(choose(word, by), [x]) : x;
    for (; i < t.length; i++) {
      const s = subjectIn(t[i]), filler = fillers.test(at());
      if (s) {
        const next = ++i;
        while (fillers.test(at()) && !known()) i++;
        if (known() && !isJoin()) return whole(make(choose(t[i++].toLowerCase(), true), [s]));
        i = next;
        return whole(s);
      }
      if (at() === '(') {
        i++;
        const n = expression();
        if (at() === ')') i++;
        return whole(n);
      }
      if (t[i + 1] === '(' && !(word && filler)) return whole(call(setNamed(at(), true) || no()));
      sentence ||= /^(whom?|that|which)$/.test(at());
      by ||= at() === 'by';
      if (filler && !(/s$/.test(at()) && known() && subjectIn(t[i + 2])) || word && at() === 'on') continue;
      if (word) return whole(term());
      if (depth && /^(|[,)])$/.test(t[i + 1] || '')) return {text: t[i++]};
      word = known() ? at() : at().length > 4 && subjectIn(t[i + 1]) && setNamed(at(), true) || no();
    }
    no();
  }

  function call(name) {
    const args = [], options = {}, all = slots(name).options;
    for (i += 2, depth++; i < t.length && t[i] !== ')';) {
      if (t[i] === ',') i++;
      else if (t[i + 1] === '=' || all.includes(t[i] + '=')) {
        const wanted = name === 'rank' && at() === 'limit' ? 'top=' : t[i] + '=', key = (all.includes(wanted) ? wanted : nearest(wanted, all) || no()).slice(0, -1);
        i += t[i + 1] === '=' ? 2 : 1;
        options[key] = /^(of|except)$/.test(key) ? expression() : {text: key === 'via' ? setNamed(t[i++] || no(), true) || no() : t[i++] || no()};
      } else if (args.length && /^\d+[mhdw]$/.test(t[i]) && all.includes('since=')) options.since = {text: t[i++]};
      else args.push(expression(name));
    }
    i++;
    depth--;
    return make(name, args, options);
  }

  const n = expression();
  return t.slice(i).every(w => w === ')') ? n : no();
}

// tree returns the tree of a text that is nearly an expression, else null.
function tree(text) {
  try {
    return read(text);
  } catch (e) {
    if (e !== unread) throw e;
    return null;
  }
}

// meant returns the query that a text probably means, if it is another one. A feed's name and options stay.
function meant(q) {
  const [, name = '', text, rest = ''] = /^([\w.~:-]+\s*=\s*)?([\s\S]*?)(,\s*(?:each|seen|without|pin)\s*=[\s\S]*)?$/.exec(q), n = tree(text), right = n && name + printed(n) + rest;
  return right && right.replace(/\s/g, '') !== q.replace(/\s/g, '') ? right : null;
}
