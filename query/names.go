package query

import (
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
}

// maxUnknownHandles is the number of handles that are looked up for one query.
const maxUnknownHandles = 8

// resolveViewer replaces $viewer by the viewer's DID.
func resolveViewer(ctx context.Context, q *xrpc.Query, list []language.Literal, where func(i int) string) error {
	for i := range list {
		if list[i].Handle != language.ViewerName {
			continue
		}
		did, err := q.Viewer(ctx)
		if err != nil {
			if e, ok := errors.AsType[*xrpc.Error](err); ok {
				return xrpc.Errorf(e.Status, e.Name, "%s%s", where(i), e.Message)
			}
			return err
		}
		list[i].Resolve(did)
	}
	return nil
}

// resolve replaces handles by DIDs. where names the place of a literal, for errors. A query holds
// no slot while handles are looked up, so a slow host delays nobody else.
func resolve(ctx context.Context, handles Handles, q *xrpc.Query, list []language.Literal, where func(i int) string) error {
	w := q.Work
	if err := resolveViewer(ctx, q, list, where); err != nil {
		return err
	}
	errs := make([]error, len(list))
	var unknown []int
	for i := range list {
		l := &list[i]
		if l.Handle == "" {
			continue
		}
		if handles == nil {
			return xrpc.Invalid("%shandles are not resolved here: give the DID of %s", where(i), l.Handle)
		}
		did, known, err := handles.Kept(l.Handle)
		switch {
		case !known:
			unknown = append(unknown, i)
		case err != nil:
			errs[i] = err
		default:
			l.Resolve(did)
		}
	}
	if len(unknown) > maxUnknownHandles {
		return xrpc.Invalid("this query has %d handles that the server has not looked up yet; at most %d are allowed. Use DIDs instead", len(unknown), maxUnknownHandles)
	}
	if len(unknown) > 0 {
		w.Leave()
		var wg sync.WaitGroup
		for _, i := range unknown {
			wg.Go(func() {
				did, err := handles.Resolve(identities.ForClient(ctx, w.Client), list[i].Handle)
				if errs[i] = err; err == nil {
					list[i].Resolve(did)
				}
			})
		}
		wg.Wait()
		if err := w.Enter(ctx); err != nil {
			return err
		}
	}
	for i, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, identities.ErrNotFound):
			return xrpc.Errorf(http.StatusBadRequest, "HandleNotFound", "%sno account has the handle %s", where(i), list[i].Handle)
		case errors.Is(err, identities.ErrBusy):
			return xrpc.Errorf(http.StatusServiceUnavailable, "Busy", "%s%s: %v; try again", where(i), list[i].Handle, err)
		case errors.Is(err, identities.ErrOff):
			return xrpc.Invalid("%s%v", where(i), err)
		default:
			return xrpc.Errorf(http.StatusBadGateway, "UpstreamFailure", "%s%s: %v", where(i), list[i].Handle, err)
		}
	}
	return nil
}
