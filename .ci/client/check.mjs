// Calls app.bsky.graph.getRelationships of a running skein with the official JavaScript client, for
// every pair of accounts in a truth file, and compares the answers with the file's records.
//
//   node check.mjs http://127.0.0.1:3210 plain-truth.json
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { AtpAgent } from '@atproto/api'

const [base, truthFile] = process.argv.slice(2)
const truth = JSON.parse(readFileSync(truthFile, 'utf8'))
const agent = new AtpAgent({ service: base })
const hidden = (did) => truth.accounts[did].status !== 'active'
const names = {
  'app.bsky.graph.follow': ['following', 'followedBy'],
  'app.bsky.graph.block': ['blocking', 'blockedBy'],
}

// byPair: actor → other → the relationship's fields.
const byPair = {}
const put = (actor, other, name, uri) => {
  const fields = ((byPair[actor] ??= {})[other] ??= {})
  if (!fields[name] || uri < fields[name]) fields[name] = uri
}
for (const [uri, r] of Object.entries(truth.records)) {
  const pair = names[r.collection]
  if (!pair || hidden(r.did) || !truth.accounts[r.subject] || hidden(r.subject)) continue
  put(r.did, r.subject, pair[0], uri)
  put(r.subject, r.did, pair[1], uri)
}

let wrong = 0
let relations = 0
const accounts = Object.keys(truth.accounts)
for (const actor of accounts) {
  for (let i = 0; i < accounts.length; i += 30) {
    const others = accounts.slice(i, i + 30)
    const { data } = await agent.app.bsky.graph.getRelationships({ actor, others })
    others.forEach((other, j) => {
      const want = { $type: 'app.bsky.graph.defs#relationship', did: other, ...byPair[actor]?.[other] }
      relations += Object.keys(want).length - 2
      if (data.actor !== actor || !isDeepStrictEqual({ ...data.relationships[j] }, want)) {
        wrong++
        console.error(actor, other, data.relationships[j], 'want', want)
      }
    })
  }
}
// An unknown handle is an item in the answer for others, and an error for actor.
const { data } = await agent.app.bsky.graph.getRelationships({ actor: accounts[0], others: ['user001.test'] })
if (data.relationships[0].notFound !== true || data.relationships[0].actor !== 'user001.test') {
  wrong++
  console.error('a handle among others:', data.relationships[0])
}
const name = await agent.app.bsky.graph
  .getRelationships({ actor: 'user001.test', others: [] })
  .then(() => 'no error', (e) => e.error)
if (name !== 'ActorNotFound') {
  wrong++
  console.error('a handle as actor:', name)
}
console.log(`getRelationships by @atproto/api: ${accounts.length ** 2} pairs, ${relations} relations, ${wrong} wrong`)
process.exit(wrong > 0 || relations < 100 ? 1 : 0)
