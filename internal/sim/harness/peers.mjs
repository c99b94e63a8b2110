// Real AT Protocol peers on the loopback interface, for tests that want to
// talk to something other than a simulation. Run with node 22 or newer, one
// process per peer, so that each can be killed and started on its own:
//
//   node peers.mjs plc   --plc-port N
//   node peers.mjs pds   --plc-port N --pds-port N --data DIR [--crawler URL]
//   node peers.mjs crawl --relay-db FILE --pds-port N [--seq N]
//   node peers.mjs feed  --pds-port N --user HANDLE --api URL --feed AT-URI
//   node peers.mjs lexicons --records DIR
//   node peers.mjs labeler --plc-port N --labeler-port N --data DIR
//
// plc    the DID directory. It keeps everything in memory: killing it loses
//        every account's identity, so leave it running.
// pds    the reference PDS. All its state is in DIR: the same DIR carries on
//        where it was, even after SIGKILL; a fresh DIR starts again at seq 1.
// crawl  makes indigo's relay subscribe to that PDS when it is next started, by
//        writing the relay's SQLite file, which the relay must not have open.
//        (The relay's own API refuses to crawl loopback addresses.) It will
//        want the events after N; without --seq it carries on from its own
//        cursor, or wants only new events if it has never seen this host.
//
// feed   asks for a feed as a client does, with @atproto/api and tokens of a user of that
//        PDS, valid and invalid ones, reports two posts as seen and asks again, and prints the results as JSON.
// lexicons  has @atproto/lexicon read the lexicons in DIR, and prints their ids as JSON.
// labeler  a labeler (@skyware/labeler), with an account of its own in the PLC directory. All its state is in
//        DIR. It reads labels from its standard input, one a line, as the arguments of createLabel in JSON,
//        and answers each with a line. Its first line of output has its DID.
//
// plc and pds print one line of JSON when they accept connections, and nothing
// else on stdout; crawl prints its line when it is done. Any option may be given
// as an environment variable instead: --pds-port as PDS_PORT.

import { mkdirSync, readFileSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'

// The PDS's admin password (user "admin") and its other secrets. They are
// constants because they must not change when a PDS is started again on its
// data, and because nothing here is reachable from outside the machine.
const ADMIN_PASSWORD = 'admin'
const JWT_SECRET = 'loopback-test-network'
const PLC_ROTATION_KEY = '01'.repeat(32)

// The host name that goes into DID documents. It must be "localhost": for any
// other name the PDS publishes https URLs, and the relay only accepts a port
// number, or plain http, for exactly this name.
const HOSTNAME = 'localhost'
const LISTEN = '127.0.0.1'

async function plc() {
  const { PlcServer, Database } = (await import('@did-plc/server')).default
  const port = option('plc-port')
  const server = PlcServer.create({ db: Database.mock(), port })
  listenOnLoopback(server.app)
  await server.start()
  ready('plc', { url: `http://${LISTEN}:${port}` })
}

async function pds() {
  const port = option('pds-port')
  const plcPort = option('plc-port')
  const data = resolve(option('data'))
  const crawler = option('crawler', '')
  mkdirSync(join(data, 'blobs'), { recursive: true })

  // The loggers are set up while the package is being loaded.
  process.env.LOG_ENABLED ??= 'true'
  process.env.LOG_LEVEL ??= 'warn'
  process.env.LOG_DESTINATION ??= join(data, 'pds.log')

  const { PDS } = await import('@atproto/pds')
  const server = await PDS.fromEnv({
    port,
    hostname: HOSTNAME,
    devMode: true, // plain http, and no protection against loopback addresses
    dataDirectory: data,
    blobstoreDiskLocation: join(data, 'blobs'),
    blobstoreDiskTmpLocation: join(data, 'blobs-tmp'),
    didPlcUrl: `http://${LISTEN}:${plcPort}`,
    plcRotationKeyK256PrivateKeyHex: PLC_ROTATION_KEY,
    jwtSecret: JWT_SECRET,
    adminPassword: ADMIN_PASSWORD,
    inviteRequired: false,
    crawlers: crawler ? [crawler] : [],
  })
  // A crawler needs the port as well, which a PDS on localhost would omit.
  server.ctx.crawlers.hostname = `${HOSTNAME}:${port}`
  listenOnLoopback(server.app)
  await server.start()
  ready('pds', { url: `http://${LISTEN}:${port}`, host: `${HOSTNAME}:${port}` })
}

async function crawl() {
  const file = resolve(option('relay-db'))
  const host = `${HOSTNAME}:${option('pds-port')}`
  const seq = option('seq', null)
  const { DatabaseSync } = await import('node:sqlite')
  const db = new DatabaseSync(file)
  // The table as the relay's ORM creates it, for a relay that has never run.
  db.exec(`CREATE TABLE IF NOT EXISTS host (
      id integer PRIMARY KEY AUTOINCREMENT,
      created_at datetime, updated_at datetime,
      hostname text NOT NULL,
      no_ssl numeric DEFAULT false,
      account_limit integer,
      trusted numeric DEFAULT false,
      status text DEFAULT "active",
      last_seq integer DEFAULT -1,
      account_count integer DEFAULT 0);
    CREATE UNIQUE INDEX IF NOT EXISTS idx_host_hostname ON host(hostname)`)
  // An active host is subscribed to when the relay starts, a trusted one gets
  // the high rate limits, and last_seq is the cursor. -1 and 0 mean no cursor:
  // the relay cannot ask for cursor 0.
  db.prepare(`INSERT INTO host
      (created_at, updated_at, hostname, no_ssl, account_limit, trusted, status, last_seq)
      VALUES (datetime(), datetime(), :host, true, 10000000, true, 'active', coalesce(:seq, -1))
      ON CONFLICT (hostname) DO UPDATE SET status = 'active', last_seq = coalesce(:seq, last_seq)`,
  ).run({ host, seq })
  db.close()
  ready('crawl', { host })
}

async function feed() {
  const { AtpAgent } = await import('@atproto/api')
  const { Secp256k1Keypair } = await import('@atproto/crypto')
  const { createServiceJwt } = await import('@atproto/xrpc-server')
  const method = 'app.bsky.feed.getFeedSkeleton'
  const user = new AtpAgent({ service: `http://${LISTEN}:${option('pds-port')}` })
  await user.login({ identifier: option('user'), password: 'pw' })
  const generator = new AtpAgent({ service: option('api') })
  const { data: service } = await generator.app.bsky.feed.describeFeedGenerator()
  const now = Math.floor(Date.now() / 1000)
  const token = async (p) => (await user.com.atproto.server.getServiceAuth(p)).data.token
  const soon = await token({ aud: service.did, lxm: method, exp: now + 2 })
  const ask = async (sign) => {
    try {
      const posts = []
      for (let cursor; ; ) {
        const headers = sign ? { authorization: `Bearer ${await sign()}` } : {} // each token is valid once
        const { data } = await generator.app.bsky.feed.getFeedSkeleton({ feed: option('feed'), limit: 5, cursor }, { headers })
        posts.push(...data.feed.map((item) => item.post))
        if (!(cursor = data.cursor)) return { status: 200, posts }
      }
    } catch (err) {
      return { status: err.status, error: err.error, message: err.message }
    }
  }
  const once = await token({ aud: service.did, lxm: method })
  const result = {
    did: user.did,
    service,
    good: await ask(() => token({ aud: service.did, lxm: method })),
    entry: await ask(() => token({ aud: service.did + '#bsky_fg', lxm: method })),
    again: await ask(() => once), // its second page
    none: await ask(),
    audience: await ask(() => token({ aud: 'did:web:other.example.com', lxm: method })),
    otherEntry: await ask(() => token({ aud: service.did + '#skein_graph', lxm: method })),
    method: await ask(() => token({ aud: service.did, lxm: 'app.bsky.feed.getTimeline' })),
    forged: await ask(async () =>
      createServiceJwt({ iss: user.did, aud: service.did, lxm: method, keypair: await Secp256k1Keypair.create() }),
    ),
  }
  const seen = 'app.bsky.feed.sendInteractions'
  const interactions = result.good.posts.slice(0, 2).map((item) => ({ item, event: 'app.bsky.feed.defs#interactionSeen', feedContext: 'x' }))
  const authorization = `Bearer ${await token({ aud: service.did, lxm: seen })}`
  await generator.app.bsky.feed.sendInteractions({ feed: option('feed'), interactions }, { headers: { authorization }, encoding: 'application/json' })
  result.unseen = await ask(() => token({ aud: service.did, lxm: method }))
  await new Promise((resolve) => setTimeout(resolve, 9000)) // and five seconds of leeway
  result.expired = await ask(() => soon)
  process.stdout.write(JSON.stringify(result) + '\n')
}

async function lexicons() {
  const { Lexicons, parseLexiconDoc } = await import('@atproto/lexicon')
  const dir = resolve(option('records'))
  const docs = readdirSync(dir).map((file) => parseLexiconDoc(JSON.parse(readFileSync(join(dir, file), 'utf8'))))
  new Lexicons(docs)
  process.stdout.write(JSON.stringify(docs.map((doc) => doc.id)) + '\n')
}

async function labeler() {
  const plc = await import('@did-plc/lib')
  const { Secp256k1Keypair } = await import('@atproto/crypto')
  const { LabelerServer } = await import('@skyware/labeler')
  const { createInterface } = await import('node:readline')
  const port = option('labeler-port')
  const data = resolve(option('data'))
  mkdirSync(data, { recursive: true })
  const url = `http://${LISTEN}:${port}`
  const secret = '02'.repeat(32)
  const key = await Secp256k1Keypair.import(secret)
  const op = await plc.addSignature(
    {
      type: 'plc_operation',
      verificationMethods: { atproto_label: key.did() },
      rotationKeys: [key.did()],
      alsoKnownAs: [],
      services: { atproto_labeler: { type: 'AtprotoLabeler', endpoint: url } },
      prev: null,
    },
    key,
  )
  const did = await plc.didForCreateOp(op)
  const directory = new plc.Client(`http://${LISTEN}:${option('plc-port')}`)
  await directory.sendOperation(did, op).catch(() => directory.getDocument(did)) // it may be there from an earlier run
  const server = new LabelerServer({ did, signingKey: secret, dbPath: join(data, 'labels.db') })
  await new Promise((done, fail) => server.start({ port, host: LISTEN }, (err) => (err ? fail(err) : done())))
  ready('labeler', { url, did })
  for await (const line of createInterface({ input: process.stdin })) {
    const { id } = await server.createLabel(JSON.parse(line))
    process.stdout.write(JSON.stringify({ made: id }) + '\n')
  }
}

// listenOnLoopback makes app.listen(port), which both servers call and which
// would listen on all interfaces, listen on the loopback one only.
function listenOnLoopback(app) {
  const listen = app.listen
  app.listen = (port) => listen.call(app, port, LISTEN)
}

function ready(what, details) {
  process.stdout.write(JSON.stringify({ ready: what, pid: process.pid, ...details }) + '\n')
}

// option returns the value of --name, or of its environment variable, or the
// fallback; without one the option is required.
function option(name, fallback) {
  const value = values[name] ?? process.env[name.toUpperCase().replaceAll('-', '_')]
  if (value !== undefined) return /port$|^seq$/.test(name) ? Number(value) : value
  if (fallback === undefined) throw new Error(`--${name} is required`)
  return fallback
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: Object.fromEntries(
    ['plc-port', 'pds-port', 'data', 'crawler', 'relay-db', 'seq', 'user', 'api', 'feed', 'records', 'labeler-port'].map((name) => [name, { type: 'string' }]),
  ),
})
const mode = { plc, pds, crawl, feed, lexicons, labeler }[positionals[0]]
if (!mode || positionals.length !== 1) {
  console.error('usage: node peers.mjs plc|pds|crawl|feed|lexicons|labeler [options], see the top of the file')
  process.exit(2)
}
await mode()
