// Tells when somebody who is on a list begins to follow an account, or ceases to: a few
// seconds after it has happened. What is done then is up to you.
//
//   node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]
//
// The cursor is kept in a file, so that nothing is missed while the bot is restarted.
import {existsSync, readFileSync, writeFileSync} from 'node:fs';
import {Skein} from 'skein-client';

const [list, account, server] = process.argv.slice(2);
const skein = new Skein(server);
const set = `intersect(listed(${list}), followers(${account}))`;
const file = process.env.CURSOR_FILE ?? 'moderation-bot.cursor';
const known = new Set();

// all reads the whole set: at the beginning, and when too much was missed to be told.
async function all() {
  const now = new Set();
  for await (const did of skein.members(set)) now.add(did);
  for (const did of now) if (!known.has(did)) entered(did);
  for (const did of known) if (!now.has(did)) left(did);
}

function entered(did) {
  known.add(did);
  console.log(`${did} follows ${account}`); // here: a label, a block, a message to a moderator
}

function left(did) {
  known.delete(did);
  console.log(`${did} does not follow ${account} any more`);
}

let first = true;
for await (const change of skein.subscribe(set, existsSync(file) ? readFileSync(file, 'utf8') : undefined)) {
  if (first || change.reset) await all();
  first = false;
  for (const did of change.entered ?? []) if (!known.has(did)) entered(did);
  for (const did of change.left ?? []) if (known.has(did)) left(did);
  writeFileSync(file, change.cursor);
}
