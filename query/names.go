package query

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"

	"skein.blue/internal/identities"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// A query may name an account by @handle or by its address at bsky.app, a record by its address or
// by an AT URI with a handle, and the viewer by $viewer. The server replaces them by DIDs, and by
// AT URIs with DIDs, before it answers the query.

// Handles resolves handles to DIDs, as an identities.Resolver does.
type Handles interface {
	// Kept returns the remembered DID of a handle, or the remembered error.
	Kept(handle string) (did string, known bool, err error)
	// Resolve looks a handle up, for a client (identities.ForClient).
	Resolve(ctx context.Context, handle string) (did string, err error)
	// HandleOf returns the handle that an account's DID document has, if it leads to the DID, and "" or an error if there is none.
	HandleOf(ctx context.Context, did string) (handle string, err error)
}

// maxUnknownHandles is the number of handles that are looked up for one query. getRelationships may name more accounts, one after another.
const maxUnknownHandles = 8

// resolve replaces $viewer and handles by DIDs. looked counts those that the query has looked up. where names the place of a literal, for errors. A query holds
// no slot while handles are looked up, so a slow host delays nobody else.
func resolve(ctx context.Context, handles Handles, q *xrpc.Query, looked *int, list []language.Literal, where func(i int) string) error {
	unknown := map[string][]int{} // the places of each handle
	for i := range list {
		var did string
		var err error
		known := true
		switch l := &list[i]; {
		case l.Handle == "":
			continue
		case l.Handle == language.ViewerName:
			did, err = q.Viewer()
		case handles == nil:
			return xrpc.Invalid("%shandles are not resolved here: give the DID of %s", where(i), l.Handle)
		default:
			did, known, err = handles.Kept(l.Handle)
		}
		switch {
		case err != nil:
			return unresolved(where(i), list[i].Handle, err)
		case known:
			list[i].Resolve(did)
		default:
			unknown[list[i].Handle] = append(unknown[list[i].Handle], i)
		}
	}
	if *looked += len(unknown); *looked > maxUnknownHandles && q.NSID != "app.bsky.graph.getRelationships" {
		return xrpc.Invalid("this query has %d handles that the server has not looked up yet; at most %d are allowed. Use DIDs instead", *looked, maxUnknownHandles)
	}
	if len(unknown) == 0 {
		return nil
	}
	q.Work.Leave()
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for handle, places := range unknown {
		wg.Go(func() {
			did, err := handles.Resolve(identities.ForClient(ctx, q.Work.Client), handle)
			if err != nil {
				errs[places[0]] = unresolved(where(places[0]), handle, err)
				return
			}
			for _, i := range places {
				list[i].Resolve(did)
			}
		})
	}
	wg.Wait()
	return cmp.Or(q.Work.Enter(ctx), cmp.Or(errs...))
}

// unresolved returns the error of a name that has no DID.
func unresolved(where, handle string, err error) error {
	if e, ok := errors.AsType[*xrpc.Error](err); ok { // of the viewer
		return xrpc.Errorf(e.Status, e.Name, "%s%s", where, e.Message)
	}
	switch {
	case errors.Is(err, identities.ErrNotFound):
		return xrpc.Errorf(http.StatusBadRequest, "HandleNotFound", "%sno account has the handle %s", where, handle)
	case errors.Is(err, identities.ErrBusy):
		return xrpc.Errorf(http.StatusServiceUnavailable, "Busy", "%s%s: %v; try again", where, handle, err)
	case errors.Is(err, identities.ErrOff):
		return xrpc.Invalid("%s%v", where, err)
	case handle == language.ViewerName:
		return err
	}
	return xrpc.Errorf(http.StatusBadGateway, "UpstreamFailure", "%s%s: %v", where, handle, err)
}
