// Reports when a member of a list starts or stops following an account, within seconds. Add your
// own action where it does.
//
//   node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]
//
// A file keeps its state: after a restart the bot reports the changes since then. A crash may make it
// repeat the last ones.
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
const saved = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
const state = saved.set === set ? saved : {set, known: []};
const known = new Set(state.known);

function entered(did) {
  known.add(did);
  console.log(`${did} follows ${account}`); // your action: a label, a block, a message to a moderator
}

function left(did) {
  known.delete(did);
  console.log(`${did} no longer follows ${account}`);
}

// compare reads the whole set, at the start and after missed changes. If the set may be incomplete,
// the client warns on stderr with the reason.
async function compare() {
  const now = new Set();
  for await (const did of skein.members({set})) now.add(did);
  for (const did of now) if (!known.has(did)) entered(did);
  for (const did of known) if (!now.has(did)) left(did);
}

let first = true;
const onRetry = (error, wait) => console.error(`${error.name}: ${error.message}; reconnecting in ${wait / 1000} s`);
for await (const change of skein.subscribe({set, cursor: state.cursor}, {onRetry})) {
  if (first || change.reset) await compare();
  first = false;
  for (const did of change.entered ?? []) if (!known.has(did)) entered(did);
  for (const did of change.left ?? []) if (known.has(did)) left(did);
  writeFileSync(file, JSON.stringify({set, cursor: change.cursor, known: [...known]}));
}
