// Names and pictures of accounts, and texts of posts. The viewer's browser fetches them from
// public.api.bsky.app, or from this server if the people are made up. On a network that is not
// public, this server gives handles, and nothing gives names, pictures or texts.
'use strict';

// profiles are by DID and by handle, texts by URI; null if there is none. handles are by DID.
const profiles = new Map(), texts = new Map(), handles = new Map();
const isPost = member => /^at:\/\/[^/]+\/app\.bsky\.feed\.post\//.test(member);
const ownerOf = member => member.replace(/^(at:\/\/|@|https:\/\/bsky\.app\/profile\/)/, '').split('/')[0];

function keepProfile(p) {
  profiles.set(p.did, p);
  profiles.set(p.handle, p);
}

// described reports whether a service describes accounts and posts, and namesShown whether accounts have names at least.
const described = () => config.people || config.public && $('names').checked;
const namesShown = () => described() || !config.public && config.handles;

// learn fetches the names of members, and the texts of posts. It calls after each answer.
async function learn(members, signal, after = () => {}) {
  const service = config.public ? 'https://public.api.bsky.app/xrpc/' : '/xrpc/', owners = members.map(ownerOf);
  const each = parameter => some => some.map(x => parameter + '=' + encodeURIComponent(x)).join('&');
  const learnOf = async (method, parameters, wanted, known, keep) => {
    const unknown = [...new Set(wanted)].filter(x => !known.has(x));
    for (let i = 0; i < unknown.length; i += 25) {
      const some = unknown.slice(i, i + 25);
      const response = await fetch(service + method + '?' + parameters(some), {signal, referrerPolicy: 'no-referrer'});
      if (!response.ok && response.status < 429) return; // the members are none of its network
      keep(await response.json());
      for (const x of some) if (!known.has(x)) known.set(x, null);
      after();
    }
  };
  if (!described()) return learnOf('blue.skein.graph.query', some => new URLSearchParams({set: `members(${some})`, names: 'true'}), owners.filter(o => o.startsWith('did:')), profiles, a => { for (const did in a.handles) keepProfile({did, handle: a.handles[did]}); });
  await learnOf('app.bsky.feed.getPosts', each('uris'), members.filter(isPost), texts, a => { for (const p of a.posts) { texts.set(p.uri, p.record.text || ''); keepProfile(p.author); } });
  await learnOf('app.bsky.actor.getProfiles', each('actors'), owners, profiles, a => a.profiles.forEach(keepProfile));
}

// nameThem names the members that are shown.
async function nameThem(out, signal) {
  const shown = [...out.querySelectorAll('[data-member]')], allowed = namesShown();
  const paint = () => shown.forEach(e => describe(e, allowed));
  paint();
  $('names-failed').hidden = true;
  if (!allowed) return;
  try {
    await learn(shown.map(e => e.dataset.member), signal, paint);
  } catch (e) {
    $('names-failed').hidden = aborted(e) || !config.public;
  }
}

// describe names the account or record of one element.
function describe(e, allowed) {
  const member = e.dataset.member, p = allowed ? profiles.get(ownerOf(member)) : null, words = allowed && texts.get(member), who = e.querySelector('.who');
  if (e.classList.contains('face')) return showFace(e, p, handles.get(member) || member);
  if (e.classList.contains('lit')) return p && nameLiteral(e, member, p, words);
  if (!p) {
    if (handles.has(member)) who.querySelector('.it').textContent = handles.get(member);
    return;
  }
  if (e.dataset.named === 'all' || e.dataset.named === 'owner' && !words) return;
  const it = who.querySelector('.it'), record = member.startsWith('at:');
  if (!e.dataset.named && !(record && e.classList.contains('subject'))) { // the line below names its author
    if (record || p.displayName) who.prepend(el('b', {}, p.displayName || p.handle), ' ');
    if (pictured(p)) e.prepend(avatar(p));
  }
  it.title = member;
  if (!record) it.textContent = '@' + p.handle;
  else if (words) { it.textContent = words; it.classList.add('words'); }
  e.dataset.named = words || !isPost(member) ? 'all' : 'owner';
}

const pictured = p => p && p.avatar && (config.people ? p.avatar.startsWith('/') : p.avatar.startsWith('https://cdn.bsky.app/'));
const avatar = p => el('img', {src: p.avatar, alt: '', loading: 'lazy', referrerpolicy: 'no-referrer'});

// showFace fills a face with the picture of its account, or else the first letter of its name or the last two of its DID.
function showFace(e, p, name) {
  if (e.dataset.named) return;
  if (p) e.dataset.named = 'all';
  e.title = p ? '@' + p.handle : name;
  e.setAttribute('aria-label', e.title);
  e.replaceChildren(pictured(p) ? avatar(p) : e.title.replace(/^(@|did:.*)/, '').slice(0, 1).toUpperCase() || name.slice(-2));
}

// nameLiteral replaces a name in an expression by one that people can read.
function nameLiteral(e, member, p, words) {
  e.title = member;
  const [, , , collection] = member.split('/');
  e.textContent = !member.startsWith('at:') ? '@' + p.handle : words ? '“' + (words.length > 40 ? words.slice(0, 40) + '…' : words) + '”' : `${collection === 'app.bsky.graph.list' ? 'list' : 'record'} of @${p.handle}`;
}
