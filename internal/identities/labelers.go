package identities

import (
	"context"
	"fmt"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Labelers finds labelers by their DID documents.
type Labelers struct {
	Directory identity.Directory // without a cache: a labeler is looked up when its key may be new
}

// Labeler returns the address of a labeler's service (#atproto_labeler), "" if it has none, and the key by
// which it signs (#atproto_label).
func (l Labelers) Labeler(ctx context.Context, did string) (endpoint string, key atcrypto.PublicKey, err error) {
	id, err := syntax.ParseDID(did)
	if err != nil {
		return "", nil, fmt.Errorf("labeler %s: %w", did, err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	doc, err := l.Directory.LookupDID(ctx, id)
	if err != nil {
		return "", nil, fmt.Errorf("looking up %s: %w", did, err)
	}
	if key, err = doc.GetPublicKey("atproto_label"); err != nil {
		return "", nil, fmt.Errorf("the DID document of %s: its labeler key (#atproto_label): %w", did, err)
	}
	return doc.GetServiceEndpoint("atproto_labeler"), key, nil
}
