package query

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"skein.blue/intern/dict"
	"skein.blue/internal/identities"
	"skein.blue/internal/syntax"
)

// A question may name an account by @handle, and an account or a record by its address at
// bsky.app, or by an AT URI whose authority is a handle, and who asks by $viewer in the place
// of a DID. What stands for them in the index,
// a DID or an AT URI with one, is put in their place before the question is worked on.

// Handles finds the DIDs of handles: an identities.Resolver.
type Handles interface {
	// Kept returns the DID of a handle, or why there is none, if that is known.
	Kept(handle string) (did string, known bool, err error)
	// Resolve finds it out.
	Resolve(ctx context.Context, handle string) (did string, err error)
}

// maxUnknownHandles is how many handles of a question are looked up; resolvedAtOnce how many
// of all questions at a time, for which clients take turns.
const (
	maxUnknownHandles = 8
	resolvedAtOnce    = 16
)

// literalOf reads what names an account or a record. ok is false if it is no such thing.
func literalOf(s string) (l literal, ok bool) {
	if rest, ok := strings.CutPrefix(s, "https://bsky.app/profile/"); ok {
		s, ok = uriOfAddress(rest)
		if !ok {
			return literal{}, false
		}
	}
	switch {
	case s == viewerName:
		return literal{s, dict.DID, viewerName}, true
	case strings.HasPrefix(s, "at://"+viewerName+"/"):
		return literal{s, dict.URI, viewerName}, syntax.ValidURI("at://" + placeholder + strings.TrimPrefix(s, "at://"+viewerName))
	case strings.HasPrefix(s, "@"):
		return literal{s, dict.DID, s[1:]}, syntax.ValidHandle(s[1:])
	case syntax.ValidDID(s):
		return literal{s: s, is: dict.DID}, true
	case syntax.ValidURI(s):
		l := literal{s: s, is: dict.URI}
		if authority, _, _ := strings.Cut(strings.TrimPrefix(s, "at://"), "/"); !strings.HasPrefix(authority, "did:") {
			l.handle = authority
		}
		return l, true
	}
	return literal{}, false
}

// namesSpace reports whether s names a space, or a record in one, by the DID of its
// authority, or as people may write it, by a handle or $viewer.
func namesSpace(s string) bool {
	rest, isURI := strings.CutPrefix(s, "at://")
	authority, path, _ := strings.Cut(rest, "/")
	if isURI && (authority == viewerName || syntax.ValidHandle(authority)) {
		s = "at://" + placeholder + "/" + path
	}
	return syntax.ValidSpaceURI(s)
}

// addressed are the collections of the records that have addresses at bsky.app.
var addressed = map[string]string{"post": "app.bsky.feed.post", "lists": "app.bsky.graph.list", "feed": "app.bsky.feed.generator"}

// uriOfAddress returns what an address at bsky.app, behind …/profile/, is of.
func uriOfAddress(path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	path, _, _ = strings.Cut(path, "#")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	isDID := syntax.ValidDID(parts[0])
	switch {
	case !isDID && !syntax.ValidHandle(parts[0]):
	case len(parts) == 1 && isDID:
		return parts[0], true
	case len(parts) == 1:
		return "@" + parts[0], true
	case len(parts) == 3 && addressed[parts[1]] != "":
		return "at://" + parts[0] + "/" + addressed[parts[1]] + "/" + parts[2], true
	}
	return "", false
}

// resolved puts a DID in the place of the literal's handle.
func (l *literal) resolved(did string) {
	if l.is == dict.DID {
		l.s = did
	} else {
		l.s = "at://" + did + strings.TrimPrefix(l.s, "at://"+l.handle)
	}
	l.handle = ""
}

// resolveViewer puts the DID of who asks in the place of $viewer.
func (s *Server) resolveViewer(ctx context.Context, q *params, list []literal, where func(i int) string) error {
	for i := range list {
		if list[i].handle != viewerName {
			continue
		}
		did, err := s.viewer(ctx, q)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); ok {
				return &Error{e.Status, e.Name, where(i) + e.Message}
			}
			return err
		}
		list[i].resolved(did)
	}
	return nil
}

// resolve puts DIDs in the place of handles. where says of a literal where it was given.
// What is not known is looked up without a slot: who waits for others keeps nobody waiting.
func (s *Server) resolve(ctx context.Context, q *params, list []literal, where func(i int) string) error {
	w := q.work
	if err := s.resolveViewer(ctx, q, list, where); err != nil {
		return err
	}
	errs := make([]error, len(list))
	var unknown []int
	for i := range list {
		l := &list[i]
		if l.handle == "" {
			continue
		}
		if s.o.Handles == nil {
			return invalid("%shandles are not resolved here: give the DID in the place of %s", where(i), l.handle)
		}
		did, known, err := s.o.Handles.Kept(l.handle)
		switch {
		case !known:
			unknown = append(unknown, i)
		case err != nil:
			errs[i] = err
		default:
			l.resolved(did)
		}
	}
	if len(unknown) > maxUnknownHandles {
		return invalid("%d handles that are to be looked up first; at most %d are in one question: give DIDs", len(unknown), maxUnknownHandles)
	}
	if len(unknown) > 0 {
		w.end()
		var wg sync.WaitGroup
		for _, i := range unknown {
			wg.Go(func() {
				if errs[i] = s.naming.enter(ctx, w.client); errs[i] != nil {
					return
				}
				defer s.naming.leave()
				did, err := s.o.Handles.Resolve(ctx, list[i].handle)
				if errs[i] = err; err == nil {
					list[i].resolved(did)
				}
			})
		}
		wg.Wait()
		if err := w.enter(ctx, w.light); err != nil {
			return err
		}
	}
	for i, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, identities.ErrNotFound):
			return &Error{http.StatusBadRequest, "HandleNotFound", where(i) + "nobody has the handle " + list[i].handle}
		case errors.Is(err, identities.ErrOff):
			return invalid("%s%v", where(i), err)
		default:
			return &Error{http.StatusBadGateway, "UpstreamFailure", where(i) + list[i].handle + ": " + err.Error()}
		}
	}
	return nil
}
