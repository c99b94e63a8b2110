package identities

import (
	"net/http"
	"net/url"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/internal/outward"
)

// NewDirectory returns a directory that caches DID documents for an hour, over a client
// for addresses that come from strangers. plc is the address of the did:plc directory.
func (b *Broker) NewDirectory(plc string, c *http.Client) identity.Directory {
	return identity.NewCacheDirectory(b.NewSource(plc, c), 100_000, time.Hour, keptUnreachable, time.Minute)
}

// NewSource returns a directory like NewDirectory's but without a cache, for Keys.
func (b *Broker) NewSource(plc string, c *http.Client) identity.Directory {
	base := &identity.BaseDirectory{PLCURL: plc, HTTPClient: documents(c, 1<<20, lookUpTimeout), SkipHandleVerification: true}
	u, err := url.Parse(plc)
	return brokered{base, b, plcLimit(plc == "" || err != nil || outward.PublicHost(u.Host))}
}
