// Reports when a member of a list starts or stops following an account, within seconds. Add your
// own action where it does.
//
//   node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]
//
// A file keeps its state: after a restart the bot reports the changes since then. A crash may make it
// repeat the last ones. list_follows_me.py shows who follows the account already.
import {Skein} from 'skein-blue';

const [list, account, server] = process.argv.slice(2);
if (!account) {
  console.error('usage: node moderation-bot.mjs LIST-URI ACCOUNT [SERVER]');
  process.exit(64);
}
const skein = new Skein(server ?? process.env.SKEIN_SERVER);
const set = `intersect(listed(${list}), followers(${account}))`;
const state = process.env.STATE_FILE ?? 'moderation-bot.json';
const onRetry = (error, wait) => console.error(`${error.name}: ${error.message}; reconnecting in ${wait / 1000} s`);
for await (const {type, member} of skein.watch({set, state}, {onRetry})) {
  // your action: a label, a block, a message to a moderator
  console.log(`${member} ${type === 'entered' ? 'follows' : 'no longer follows'} ${account}`);
}
