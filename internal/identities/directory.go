package identities

import (
	"net/http"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/internal/outward"
)

// NewDirectory returns a directory that caches DID documents for an hour, over a client
// for addresses that come from strangers. plc is the address of the did:plc directory.
func NewDirectory(plc string, c *http.Client) *identity.CacheDirectory {
	return identity.NewCacheDirectory(NewSource(plc, c), 100_000, time.Hour, time.Minute, time.Minute)
}

// NewSource returns a directory like NewDirectory's but without a cache, for Keys.
func NewSource(plc string, c *http.Client) *identity.BaseDirectory {
	return &identity.BaseDirectory{
		PLCURL: plc, HTTPClient: *outward.Documents(c, 1<<20, 20*time.Second), SkipHandleVerification: true,
	}
}
