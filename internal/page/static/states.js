// The states before an answer, without one, and with a part of one.
'use strict';

// waiting says, after a moment, for how long a query has been running, and stops it on request. Another answer then
// leaves. It returns a function to call when the query has ended.
function waiting(out, asked, asking) {
  const box = $('waiting'), before = out.firstChild, began = Date.now(), time = el('span', {'aria-hidden': 'true'});
  const tick = () => { time.textContent = ` for ${Math.ceil((Date.now() - began) / 1000)} s `; };
  const button = action('Stop', () => {
    if (asking.signal.aborted) return show();
    asking.abort();
    out.removeAttribute('aria-busy');
    tick();
    box.replaceChildren('Stopped after working', time, button);
    button.textContent = 'Ask again';
    button.focus();
  });
  const soon = setTimeout(() => {
    tick();
    box.replaceChildren('Working', time, button);
    if (out.firstChild === before) out.replaceChildren(title(el('code', {}, ...spell(asked))));
  }, 300), ticks = setInterval(tick, 1000);
  const end = () => { clearTimeout(soon); clearInterval(ticks); };
  asking.signal.addEventListener('abort', end);
  box.replaceChildren();
  return () => {
    end();
    if (asking.signal.aborted) return;
    if (box.contains(document.activeElement)) atAnswer();
    box.replaceChildren();
  };
}

// fitting lists commands that fill an index, and what they fetch, for this server: it may have a part of the network only, or
// be on a network of its own.
const fitting = did => el('dl', {class: 'ways'}, ...[latest.members ? [`skein serve --around …,${did || '@YOUR.HANDLE'}`, 'this part, and the account with those that it follows'] :
  did ? ['skein backfill --did ' + did, 'the records of this account, while the server runs'] : ['skein serve --store mine --around @YOUR.HANDLE', 'you and the accounts that you follow, with all their records'],
[`skein serve ${latest.members ? '--store all ' : ''}--backfill repos`, 'the whole network' + (config.public ? ', within days; takes 300 GB of disk' : '')]].map(([command, what]) => el('div', {}, el('dt', {}, el('code', {}, command)), el('dd', {}, what))));

// incomplete says of what an answer may lack something, why, and how to get it.
function incomplete({incomplete, reason, missing, sample}, what = 'This answer') {
  const {accounts, roster, labelers} = missing || {}, did = !roster && /did:[\w:.%-]*\w/.exec(reason);
  const lacks = [accounts > (did ? 1 : 0) && 'records of ' + counted(accounts, 'account'), roster && counted(roster, 'list') + ' of accounts', labelers && 'labels of ' + counted(labelers, 'labeler')].filter(Boolean);
  return !incomplete && !sample ? '' : el('div', {class: 'warn'},
    incomplete && el('p', {}, `${what} may be incomplete: ${sentence(reason)} `, lacks.length > 0 && `What may be missing: ${lacks.join(', ')}.`),
    sample && el('p', {}, `This answer is an estimate from a sample: ${sentence(sample)}`),
    Boolean(accounts || roster) && el('details', {}, el('summary', {}, 'How to complete it'), fitting(did && did[0])));
}

// nothing says why the answer to a query has no members.
function nothing({type, incomplete}, q = '') {
  const any = q.replace(/\bmin=\d+/g, 'min=1');
  return el('p', {}, `No ${type === 'did' ? 'accounts' : 'records'} ${incomplete ? 'are indexed here, and there may be some.' : any === q ? 'found. If you expected some, check the handles, DIDs and links in the query.' : 'have such a count.'}`, any !== q && link({q: any}, ' Show those with min=1'));
}

// emptiness says what to do about an index without records.
async function emptiness(out, signal) {
  const m = await fetch('/live', {signal}).then(r => r.json()).catch(() => ({}));
  if (m.edges === 0) out.prepend(el('section', {id: 'empty', class: 'warn'}, el('h2', {}, 'Nothing is indexed yet'), el('p', {}, (m.state === 'off' ? 'This server does not index.' : 'This server hears what happens from now on.') + ' For the past, start a server like this:'), fitting()));
}
