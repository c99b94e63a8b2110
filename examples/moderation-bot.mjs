// Tells when somebody who is on a list begins to follow an account, or ceases to: a few
// seconds after it has happened. What is done then is up to you.
//
//   node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]
//
// What it knows is kept in a file, so that a bot that is started again tells what has changed
// meanwhile, and nothing twice.
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {Skein} from 'skein-blue';

const [list, account, server] = process.argv.slice(2);
if (!account) {
  console.error('usage: node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]');
  process.exit(64);
}
const skein = new Skein(server ?? process.env.SKEIN_SERVER);
const set = `intersect(listed(${list}), followers(${account}))`;
const file = process.env.STATE_FILE ?? 'moderation-bot.json';
const kept = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
const state = kept.set === set ? kept : {set, known: []};
const known = new Set(state.known);

function entered(did) {
  known.add(did);
  console.log(`${did} follows ${account}`); // here: a label, a block, a message to a moderator
}

function left(did) {
  known.delete(did);
  console.log(`${did} does not follow ${account} any more`);
}

// compare reads the whole set: at the beginning, and when too much was missed to be told. Where
// the set may be incomplete the client warns on stderr, and says why.
async function compare() {
  const now = new Set();
  for await (const did of skein.members({set})) now.add(did);
  for (const did of now) if (!known.has(did)) entered(did);
  for (const did of known) if (!now.has(did)) left(did);
}

let first = true;
const onRetry = (error, wait) => console.error(`${error.name}: ${error.message}; connecting again in ${wait / 1000} s`);
for await (const change of skein.subscribe({set, cursor: state.cursor}, {onRetry})) {
  if (first || change.reset) await compare();
  first = false;
  for (const did of change.entered ?? []) if (!known.has(did)) entered(did);
  for (const did of change.left ?? []) if (known.has(did)) left(did);
  writeFileSync(file, JSON.stringify({set, cursor: change.cursor, known: [...known]}));
}
