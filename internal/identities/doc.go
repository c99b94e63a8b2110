// Package identities resolves names that strangers give: the DID of a handle, by DNS and
// HTTPS as the specification says (atproto.com/specs/handle), or through a service
// (com.atproto.identity.resolveHandle); the document of a DID; and the issuer of a service
// auth token. indigo's atproto/identity does the resolving.
//
// The package admits look-ups to their upstreams (Broker), caches answers, and connects only to addresses
// of the public internet (package outward). It decides nothing about permissions.
package identities
