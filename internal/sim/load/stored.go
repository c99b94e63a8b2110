package load

import (
	"context"
	"errors"
	"fmt"

	"skein.blue/internal/app"
)

// Verify compares a store that another process has made from a relay of a simulated network with
// the model, up to the store's cursor. It uses the fields Store, Network and Stderr of o. It first
// finishes the erasing of deleted accounts, as the daemon would. It returns some of the
// differences that it finds.
func Verify(ctx context.Context, o Options) (problems []string, err error) {
	r := &run{o: o}
	o.Store.Create = false
	if r.x, err = app.OpenIndex(ctx, o.Store); err != nil {
		return nil, err
	}
	sources := map[string]bool{}
	for _, c := range r.x.Graph.Cursors() {
		if o.Network.History > 0 && isArchive(c.Source) {
			continue
		}
		sources[c.Source] = true
		r.source = c.Source
	}
	if len(sources) != 1 {
		return nil, errors.Join(fmt.Errorf("%w: %s has events of %d sources, and the comparison needs one relay", ErrOther, o.Store.Store, len(sources)), r.x.Close(ctx))
	}
	err = r.erase(ctx)
	counts, countErr := r.counts(ctx)
	r.report.Edges = edges(counts)
	if err = errors.Join(err, countErr, r.x.Close(ctx)); err != nil {
		return nil, err
	}
	return r.verify(ctx)
}
