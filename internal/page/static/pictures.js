// Pictures of answers: sets as circles, rows or a matrix, faces, and an account's circle.
'use strict';

// drawn makes an element of SVG.
function drawn(name, attributes, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  attribute(e, attributes);
  e.append(...children);
  return e;
}

// operandsOf returns the operator of an expression and its operands, null if none combines sets.
function operandsOf(q) {
  const {name, args} = !meant(q) && tree(q) || {}, all = (args || []).map(printed);
  if (name === 'mutuals') return {operator: 'intersect', sets: [`follows(${all})`, `followers(${all})`]};
  const least = name === 'atleast' ? Number(all.shift()) : 0;
  return /^(intersect|union|except|atleast)$/.test(name) && all.length > 1 && all.length <= 20 ? {operator: name, least, sets: all} : null;
}

const bits = mask => [0, 1, 2, 3, 4].filter(i => mask >> i & 1);
const join = (operator, sets) => sets.length > 1 ? `${operator}(${sets.join(', ')})` : sets[0];
async function overlap(sets, signal) {
  const {answer, asOf} = await ask('blue.skein.graph.overlap', sets.map(s => ['set', s]), signal);
  return {...answer, asOf};
}

// regionsOf returns the parts into which two to five sets divide each other: the sets that a part
// is in, as bits, its size, its query, and whether it is in the answer. All sizes come from one call
// of overlap, so they agree: an intersection of up to five sets is that of two of the sets it asks for.
async function regionsOf({operator, least, sets}, signal) {
  const all = [], asked = [], parts = Array.from({length: 2 ** sets.length - 1}, (_, k) => k + 1);
  for (const mask of parts) {
    const inside = bits(mask).map(i => sets[i]);
    if (inside.length === 1 || inside.length === 2 && sets.length > 2 || mask === 7 && sets.length > 4) all[mask] = asked.push(join('intersect', inside)) - 1;
  }
  const answer = await overlap(asked, signal);
  const shared = mask => {
    const half = [7, ...parts].find(h => (h & mask) === h && all[h] >= 0 && all[mask & ~h || h] >= 0);
    return answer.pairs[all[half]][all[mask & ~half || half]];
  };
  const regions = parts.map(mask => {
    const inside = bits(mask), outside = sets.filter((_, i) => !inside.includes(i));
    let size = 0; // by inclusion and exclusion
    for (const m of parts) if ((m & mask) === mask) size += (inside.length - bits(m).length) % 2 ? -shared(m) : shared(m);
    const kept = {intersect: !outside.length, union: true, except: mask === 1, atleast: inside.length >= least}[operator];
    return {mask, size, kept, q: join('except', [join('intersect', inside.map(i => sets[i])), ...outside]), name: `${number(size)} ${outside.length ? 'only ' : ''}in ${inside.map(i => sets[i]).join(' and ')}`};
  });
  return {regions, answer, totals: sets.map((_, i) => answer.totals[all[1 << i]])};
}

// combined returns a picture of the sets that an expression combines, '' if it combines none.
function combined(q, signal) {
  const operands = operandsOf(q);
  return operands ? overlapping(operands, signal) : '';
}

// overlapping returns a picture of sets: circles, rows, or a matrix. Sets that are only compared have no operator.
function overlapping(operands, signal) {
  const n = operands.sets.length;
  if (n < 2 || n > (operands.operator ? 5 : 3)) return matrix(operands.sets, signal);
  return picture(n < 4 ? 'venn' : 'upset', 'How these sets overlap', signal, async () => {
    const {regions, answer, totals} = await regionsOf(operands, signal);
    return [el('ul', {class: 'legend', 'data-as-of': answer.asOf}, ...operands.sets.map((s, i) => el('li', {class: 'set' + i}, link({q: s}, el('b', {}, letter(i)), ...phrase(s), ' ', el('strong', {}, number(totals[i])))))), ...n < 4 ? circles(regions, totals) : rows(regions, n), ...await doubts(operands.sets, answer, signal)];
  });
}

// doubts says which of some sets may be incomplete, why, and how to complete them.
async function doubts(sets, answer, signal) {
  const all = {};
  if (answer.incomplete) (await Promise.all(sets.map(s => countOf(s, signal)))).forEach(({answer: a}, i) => a.incomplete && (all[a.reason] ||= {...a, of: []}).of.push(letter(i)));
  return [incomplete({sample: answer.sample}), ...Object.values(all).map(a => incomplete(a, a.of.join(', ')))];
}

const letter = i => String.fromCharCode(65 + i);

// phrase names a set in words, if it has them.
function phrase(set) {
  const [, name, of] = /^(\w+)\(([^(),]+)\)$/.exec(set) || [], {heading} = setOf(name);
  return heading ? [heading + ' ', ...spell(of, 'span')] : spell(set, 'span');
}

// circles draws two or three sets, each with its letter. Two are to scale, as far as all of their parts can be seen.
function circles(regions, totals) {
  const size = mask => regions[mask - 1].size, large = Math.max(...totals, 1), root = totals.map(t => Math.sqrt(t / large)), wide = 400, high = totals.length > 2 ? 262 : 220;
  let scaled = false, all = root.map((r, i) => ({x: [155, 245, 200][i], y: [92, 92, 170][i], r: 60 + 22 * r}));
  if (totals.length === 2) {
    const [r, s] = root.map((r, i) => Math.min(Math.max(46, 100 * r), size(3) && !size(i + 1) && size(2 - i) ? 76 : 100)), small = 2 * Math.min(r, s), whole = !size(1) || !size(2);
    let near = Math.abs(r - s), far = r + s;
    while (far - near > .1) {
      const d = (near + far) / 2;
      if (lens(r, s, d) > size(3) / large * Math.PI * 1e4) near = d;
      else far = d;
    }
    const d = !size(3) ? r + s + 8 : whole ? r + s - small : r + s - Math.min(small - 44, Math.max(44, r + s - near)), x = 200 - (Math.min(-r, d - s) + Math.max(r, d + s)) / 2;
    scaled = Math.abs(r - 100 * root[0]) + Math.abs(s - 100 * root[1]) < 1 && (!size(3) || Math.abs(d - near) < 2);
    all = [{x, y: 110, r}, {x: x + d, y: 110, r: s}];
  }
  const places = {}; // for the number of each part, the point with the most room
  const level = all.length < 3; // the numbers of two circles stand in a line
  for (let y = level ? 110 : 0; y < high; y += level ? high : 3) {
    for (let x = 0; x < wide; x += 3) {
      const away = all.map(c => c.r - Math.hypot(x - c.x, y - c.y)), mask = away.reduce((m, d, i) => m | (d > 0) << i, 0), room = Math.min(...away.map(Math.abs));
      if (!(places[mask]?.room >= room)) places[mask] = {x, y: y + 5, room};
    }
  }
  // A part covers those of fewer sets, which are drawn before it.
  const parts = regions.filter(r => places[r.mask]).sort((a, b) => bits(a.mask).length - bits(b.mask).length).map(r => {
    const {x, y} = places[r.mask], text = drawn('text', {x, y}, (r.size < 1e4 ? number : rough)(r.size));
    const form = bits(r.mask).map(i => drawn('g', {'clip-path': `url(#clip${i})`})).reduceRight((inner, g) => (g.append(inner), g), drawn('rect', {width: wide, height: high}));
    return r.size ? drawn('a', {href: address({q: r.q}), 'data-link': '', class: r.kept ? 'kept' : '', 'aria-label': r.name}, drawn('title', {}, r.name), form, text) : drawn('g', {class: 'none'}, form, text);
  });
  const round = (c, i) => drawn('circle', {cx: c.x, cy: c.y, r: c.r, class: 'ring set' + i}), name = (c, i) => drawn('text', {x: c.x + (i ? .87 : -.87) * (c.r + 9), y: c.y + (i > 1 ? .65 : -.5) * (c.r + 9), class: 'name set' + i}, letter(i));
  return [drawn('svg', {viewBox: `0 0 ${wide} ${high}`, role: 'group', 'aria-label': 'The parts of the sets'}, ...all.map((c, i) => drawn('clipPath', {id: 'clip' + i}, round(c, i))), ...parts, ...all.map(round), ...all.map(name)),
    facts((scaled ? 'To scale. ' : 'Not to scale. ') + (regions.some(r => r.kept) ? 'The answer is filled. ' : '') + 'Each part is a link.')];
}

// saveCircles saves the circles with their title, their legend, what they may lack, and where and when they are from. The page's
// policy lets no canvas draw them, so the file is an SVG, with the styles as attributes.
function saveCircles() {
  const found = s => [...document.querySelectorAll(s)], text = e => e.textContent, [svg] = found('.venn svg'), copy = svg.cloneNode(true), all = svg.querySelectorAll('*'), rings = found('.venn svg > circle'), {asOf} = found('.legend')[0].dataset, {color, backgroundColor} = getComputedStyle(svg.parentNode);
  const wrap = (text, fill = color) => text.match(/.{1,62}(\s|$)|.{62}/g).map(t => [t, fill]), head = wrap(text(found('#out h2')[0])), x = -20, wide = 440;
  const lines = [...head, ...found('.venn li').flatMap((li, i) => wrap(`${letter(i)}: ${text(li).slice(1)}`, getComputedStyle(rings[i]).stroke)), ...[...found('.venn p.warn, .venn .warn p').map(text), `Source: ${location.host}, ${asOf ? 'as of ' + asOf : 'saved ' + new Date().toISOString()}`].flatMap(t => wrap(t))];
  const y = -20 * head.length - 10, below = svg.viewBox.baseVal.height, high = below + 20 * lines.length + 20;
  copy.querySelectorAll('*').forEach((e, i) => {
    for (const name of ['fill', 'stroke', 'stroke-width', 'font-family', 'font-size', 'font-weight', 'text-anchor']) e.setAttribute(name, getComputedStyle(all[i])[name]);
    e.removeAttribute('href');
  });
  attribute(copy, {viewBox: `${x} ${y} ${wide} ${high}`, width: 2 * wide, height: 2 * high, 'font-family': 'system-ui, sans-serif', 'font-size': 12});
  copy.prepend(drawn('title', {}, document.title), drawn('rect', {x, y, width: wide, height: high, fill: backgroundColor}));
  copy.append(...lines.map(([t, fill], i) => drawn('text', {x: x + 8, y: i < head.length ? y + 20 * (i + 1) : below + 20 * (i + 1 - head.length), fill}, t)));
  save(new URLSearchParams(location.search).values().next().value, '.svg', 'image/svg+xml', new XMLSerializer().serializeToString(copy));
}

// lens returns the area that circles of radii r and s share at a distance.
function lens(r, s, d) {
  const part = (r, s) => r * r * Math.acos((d * d + r * r - s * s) / (2 * d * r));
  return part(r, s) + part(s, r) - Math.sqrt((-d + r + s) * (d + r - s) * (d - r + s) * (d + r + s)) / 2;
}

// rows draws the parts of four or five sets: a dot for each set that a part is in, and a bar.
function rows(regions, n) {
  const some = regions.filter(r => r.size > 0).sort((a, b) => b.size - a.size);
  return [el('ol', {class: 'rows'}, ...some.map(r => {
    const a = link({q: r.q}, ...Array.from({length: n}, (_, i) => el('b', {class: r.mask >> i & 1 ? 'in' : null}, letter(i))), place(el('i'), {width: 60 * r.size / some[0].size}), number(r.size));
    a.setAttribute('aria-label', r.name);
    return el('li', {class: r.kept ? 'kept' : null}, a);
  })), facts('The answer is filled. Each row has the members of exactly these sets, and is a link.')];
}

// matrix draws how many each two of up to 20 sets share. A cell is darker the more it has of the
// smaller set.
const matrix = (sets, signal) => picture('matrix', 'How many each two of these share', signal, async () => {
  const answer = await overlap(sets, signal);
  const cell = (i, j) => {
    const n = answer.pairs[i][j], share = n / Math.max(1, Math.min(answer.totals[i], answer.totals[j]));
    const td = el('td', {title: i === j ? letter(i) : `${letter(i)} and ${letter(j)}: ${number(n)}, ${Math.round(100 * share)} % of the smaller`}, n ? link({q: i === j ? sets[i] : `intersect(${sets[i]}, ${sets[j]})`}, rough(n)) : '0');
    td.style.setProperty('--share', (i === j ? 0 : 55 * Math.sqrt(share)) + '%');
    return td;
  };
  return [el('div', {class: 'scroll'}, el('table', {}, el('tr', {}, el('td'), ...sets.map((_, i) => el('th', {scope: 'col'}, letter(i)))), ...sets.map((s, i) => el('tr', {}, el('th', {scope: 'row'}, el('b', {}, letter(i) + ' '), ...phrase(s)), ...sets.map((_, j) => cell(i, j)))))),
    facts('Darker: more of the smaller of the two. On the diagonal: each alone. Each cell is a link.'), ...await doubts(sets, answer, signal)];
});

// showOverlap compares the sets, lists, accounts or posts in a text, one in a line.
function showOverlap(out, text, signal) {
  const input = el('textarea', {rows: '4', spellcheck: 'false', autocapitalize: 'off', id: 'compared'});
  input.value = text;
  const sets = text.split('\n').map(clean).filter(Boolean).map(t => {
    const s = !isSet(t) && subjectOf(t);
    return s ? `${usual[s.kind]}(${s.name})` : t;
  });
  const table = new URLSearchParams([...sets.map(s => ['set', s]), ['format', 'csv'], ...config.handles ? [['names', 'true']] : []]);
  out.replaceChildren(title('How much do they overlap?'), el('form', {onsubmit: e => {
    e.preventDefault();
    go({overlap: input.value}).then(atAnswer);
  }}, el('label', {for: 'compared'}, 'Up to 20 lists, accounts (their followers), posts (their likers) or expressions, one in each line'), input, el('button', {}, 'Compare')),
  ...sets.length ? [overlapping({sets}, signal), el('div', {class: 'bar'}, ...share(), el('a', {class: 'plain', href: '/xrpc/blue.skein.graph.overlap?' + table, download: 'overlap.csv'}, 'CSV'))] : []);
}

// face is the picture of an account, a link. names.js fills it.
function face(did) {
  const a = link({q: did});
  a.className = 'face';
  a.dataset.member = did;
  return a;
}

// faces shows, once a result of a ranking is in sight, who gave it its count.
function faces(out, params, signal) {
  if (!namesShown() || !opened(params, 'did:x') || /\b(rank|blend|sample|authors)\s*\(/.test(params.of)) return;
  let turn = Promise.resolve();
  const seen = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(({target}) => {
    seen.unobserve(target);
    turn = turn.then(async () => {
      const {answer} = await ask('blue.skein.graph.query', {set: opened(params, target.dataset.member), limit: '5'}, signal), all = el('span', {class: 'faces'}, ...answer.members.map(face));
      target.querySelector('.more').prepend(all);
      nameThem(all, signal);
    }).catch(() => { /* the count remains */ });
  }));
  out.querySelectorAll('.members li').forEach(li => seen.observe(li));
}

// between returns the ranking of the accounts that an account interacts with most, of what the
// server indexes.
const between = x => `blend(${[['posts', 3, 'repliers'], ['posts', 2, 'quoters'], ['posts', 1, 'likers'], ['likes', 1, 'authors'], ['reposts', 2, 'authors']].filter(([set, , via]) => setOf(set).name && setOf(via).name)
  .map(([set, weight, via]) => `${weight}, rank(of=${set}(${x}${via === 'authors' ? ', since=90d' : ''}), via=${via})`).join(', ')}, except=members(${x}))`;

// circle returns a picture of these accounts around the account, the closest ones inside. Their names stand below it
// if they have no pictures.
const circle = (x, signal) => picture('circle', 'Its circle', signal, async () => {
  const set = between(x), {answer} = await ask('blue.skein.graph.rank', {set, limit: '24', ...config.handles && {names: 'true'}}, signal), inner = Math.min(8, answer.items.length);
  if (!inner) return null;
  Object.entries(answer.handles || {}).forEach(([did, handle]) => handles.set(did, '@' + handle));
  const at = (who, turn, away, width) => place(face(who), {left: 50 + away * Math.sin(2 * Math.PI * turn), top: 50 - away * Math.cos(2 * Math.PI * turn), width});
  const around = el('div', {class: 'around'}, at(x, 0, 0, 22), ...answer.items.map((i, k) => k < inner ? at(i.member, k / inner, 24, 14) : at(i.member, (k - inner + .5) / (answer.items.length - inner), 43, 10)));
  const names = answer.items.map(({member}) => Object.assign(spell(member)[1], {textContent: handles.get(member) || '…' + member.slice(-6)}));
  return [around, el('p', {class: 'facts'}, setOf('repliers').name ? 'Who answers, quotes and likes it, and whom it likes and reposts, ' : 'Whom it liked and reposted in the last 90 days, ', link({q: set}, 'as a list'), '.'), facts(...names), unsure(answer)];
});
