// Package identities resolves names that strangers give: the DID of a handle, by DNS and
// HTTPS as the specification says (atproto.com/specs/handle), or through a service
// (com.atproto.identity.resolveHandle); the document of a DID; and the issuer of a service
// auth token. indigo's atproto/identity does the resolving.
//
// The package admits look-ups to their upstreams (Broker), caches answers, and connects only to addresses
// of the public internet (package outward). It decides nothing about permissions.
//
// # The copy of the did:plc directory
//
// A Mirror keeps a copy of the did:plc directory: which host each account has, and which key
// signs its commits. With it, skein needs no request per account to verify signatures or to find
// the host of a repo.
//
// The directory exports the operations of all accounts by the time at which it received them
// (https://web.plc.directory/spec/v0.1/did-plc#directory-http-api, GET /export). A Mirror reads them
// from the first one, which takes hours, continues where it stopped after a restart, and then asks
// for new ones every ten seconds. The newest operation of an account counts: an operation that
// invalidates earlier ones (a recovery) is newer than those.
//
// PLC is an identity.Directory over a Mirror. It answers from the copy only while the copy is at most ten
// minutes old, and asks the directory otherwise: for an account that it does not have, for one
// that was purged (after an #identity event, or a signature that does not match), and for one
// whose operation it cannot represent. Wrong or outdated rows therefore cost a request, not an
// answer.
//
// The copy is a store of its own, not part of the index: it can be deleted, and is read again.
//
// Its rows are:
//
//	"a" DID  the account: 15 bytes, the base32 of the DID; value: row (see row.bytes)
//	"c"      the time of the newest operation that was read, in Unix milliseconds, as a uvarint
package identities
