// A feed generator: the posts that the members of a list like today, one of each author.
//
//   node feed-generator.mjs LIST-URI [PORT]
//
// Serve it as https://FEED_HOST, behind a reverse proxy that terminates TLS, and announce it with a
// record app.bsky.feed.generator whose did is did:web:FEED_HOST. (A feed without code needs only a
// line in a file: skein serve --feeds.)
import {createServer} from 'node:http';
import {Skein} from 'skein-blue';

const [list, port = '3220'] = process.argv.slice(2);
if (!list) {
  console.error('usage: node feed-generator.mjs LIST-URI [PORT]');
  process.exit(64);
}
const host = process.env.FEED_HOST ?? 'localhost:' + port;
const skein = new Skein(process.env.SKEIN_SERVER ?? 'http://127.0.0.1:3210');
const did = 'did:web:' + host.replace(':', '%3A');
const feed = `at://${process.env.FEED_PUBLISHER ?? did}/app.bsky.feed.generator/list-likes`;

let posts = null, made = 0;

async function rank() {
  // If posts may be missing, the client warns on stderr with the reason. A feed can go on.
  const {items} = await skein.rank({of: `listed(${list})`, via: 'likes', since: '24h', subjectsSince: '48h', limit: 1000});
  const authors = new Set();
  return items.map(i => i.member).filter(uri => {
    const author = uri.split('/')[2];
    return !authors.has(author) && authors.add(author);
  });
}

// ranked asks skein at most once a minute, however many requests the feed gets.
function ranked() {
  if (Date.now() - made > 60_000) {
    made = Date.now();
    posts = rank();
    posts.catch(() => { made = 0; }); // the next request retries
  }
  return posts;
}

const answers = {
  '/.well-known/did.json': () => ({'@context': ['https://www.w3.org/ns/did/v1'], id: did, service: [{id: '#bsky_fg', type: 'BskyFeedGenerator', serviceEndpoint: 'https://' + host}]}),
  '/xrpc/app.bsky.feed.describeFeedGenerator': () => ({did, feeds: [{uri: feed}]}),
  '/xrpc/app.bsky.feed.getFeedSkeleton': async query => {
    const from = Number(query.get('cursor') ?? 0), limit = Math.min(Number(query.get('limit') ?? 50), 100);
    const page = (await ranked()).slice(from, from + limit);
    return {feed: page.map(post => ({post})), ...(page.length === limit && {cursor: String(from + limit)})};
  },
};

createServer(async (request, response) => {
  const send = (status, body) => response.writeHead(status, {'content-type': 'application/json'}).end(JSON.stringify(body));
  const [path, query = ''] = request.url.split('?');
  const answer = answers[path];
  if (!answer) return send(404, {error: 'NotFound', message: 'unknown path ' + path});
  try {
    send(200, await answer(new URLSearchParams(query)));
  } catch (error) {
    send(502, {error: error.name, message: error.message});
  }
}).listen(Number(port), '127.0.0.1', () => console.log(`feed ${feed} on http://127.0.0.1:${port}`));
