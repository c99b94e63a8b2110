package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// A Past says which history a daemon fetches automatically.
type Past struct {
	// Archive is the URL of an archive, "" for none.
	Archive string
	// Repos fetches all repos of the relay's hosts.
	Repos bool
}

// runBackfill starts the tasks that fetch history, and repos with missed events.
func (s *server) runBackfill(t *tasks) {
	began := func() {
		t.run("backfill start", func(ctx context.Context) error { s.beginPast(ctx, s.o.Past); return nil })
	}
	t.run("backfill", func(ctx context.Context) error {
		// Its start only reads. A cluster that does not answer delays it.
		run := func() error { return s.Backfill.Run(ctx, began) }
		if err := await(ctx, s.log.With("component", "backfill"), true, run); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
}

// beginPast starts fetching history, unless it is already fetched or in progress.
func (s *server) beginPast(ctx context.Context, past Past) {
	b := s.Graph.Backfill()
	begin := func() error { return nil }
	switch {
	case past.Archive != "" && b.Archive == "" && b.Roster.Source != format.RosterArchive+past.Archive && b.Roster.Source != format.RosterRepos:
		begin = func() error { return s.Backfill.Archive(ctx, past.Archive) }
	case past.Repos && len(b.Hosts) == 0 && (b.Roster.Source != format.RosterRepos || len(b.Roster.Unlisted) > 0):
		begin = func() error { return s.Backfill.Hosts(ctx) }
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := begin()
		if err == nil || errors.Is(err, backfill.ErrBusy) || ctx.Err() != nil {
			return
		}
		s.log.Warn("cannot start fetching history; retrying", "component", "backfill", "error", err, "retry_in", wait.String())
		if outward.Wait(ctx, wait) != nil {
			return
		}
	}
}

// listening returns when skein began to follow the stream: in a new store, at its first event. ok is
// false if another process began. The time is the present until the real one is known, and zero without a
// stream. An event's time comes from its host, and this machine's clock may be wrong, so listening uses the
// time that the first events agree on (consumer.HeardSince).
func (x *Index) listening() (since time.Time, ok bool) {
	c := x.consumer.Load()
	if c == nil || !x.Graph.Made() {
		return time.Time{}, c == nil
	}
	if at, known := c.HeardSince(); known {
		return at, true
	}
	return time.Now(), true
}

// isLive reports whether everything that the relay has sent is applied, or nearly.
func (x *Index) isLive() bool {
	c := x.consumer.Load()
	return c == nil || c.Status().State == consumer.Live
}

// answerJSON writes an answer.
func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = WriteJSONLine(w, v)
}

// refuse writes an error answer.
func refuse(w http.ResponseWriter, code int, err error) {
	answerJSON(w, code, map[string]string{"error": err.Error()})
}

// post returns the handler of a POST request that changes what is fetched. do returns what to answer.
func (s *server) post(code int, do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Backfill == nil {
			refuse(w, http.StatusConflict, cmp.Or(s.healthy(), errors.New("this daemon fetches no repos; it runs with --consume=false or --repair=false")))
			return
		}
		// The server's deadlines are for strangers. A relay's list of hosts, a large repo and a
		// slow disk may take minutes, and the operator can end the request.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		switch v, err := do(r); {
		case errors.Is(err, backfill.ErrBusy):
			refuse(w, http.StatusConflict, err)
		case err != nil:
			refuse(w, http.StatusBadRequest, err)
		default:
			answerJSON(w, code, v)
		}
	}
}

// backfillEndpoints serves skein backfill and skein resync.
func (s *server) backfillEndpoints(mux *http.ServeMux) {
	mux.HandleFunc("GET /backfill", func(w http.ResponseWriter, _ *http.Request) {
		if s.Backfill == nil {
			answerJSON(w, http.StatusOK, struct{}{})
			return
		}
		answerJSON(w, http.StatusOK, s.Backfill.StatusNow())
	})
	mux.HandleFunc("POST /backfill", s.post(http.StatusAccepted, s.postBackfill))
	mux.HandleFunc("POST /resync", s.post(http.StatusAccepted, s.postResync))
	mux.HandleFunc("POST /car", s.post(http.StatusOK, func(r *http.Request) (any, error) {
		return s.Backfill.PlaceCAR(r.Context(), r.Body)
	}))
}

func (s *server) postBackfill(r *http.Request) (any, error) {
	var job struct {
		Archive string
		Repos   bool
		Hosts   []string
	}
	err := decode(r, &job)
	switch {
	case err != nil:
	case job.Archive != "":
		err = s.Backfill.Archive(r.Context(), job.Archive)
	case job.Repos || len(job.Hosts) > 0:
		err = s.Backfill.Hosts(r.Context(), job.Hosts...)
	default:
		err = errors.New("nothing to do; set \"archive\", \"hosts\" or \"repos\": true in the request")
	}
	return s.Backfill.StatusNow(), err
}

func (s *server) postResync(r *http.Request) (any, error) {
	var job struct {
		DIDs      []string
		TrustHost bool
	}
	if err := decode(r, &job); err != nil {
		return nil, err
	}
	for i, name := range job.DIDs {
		if handle, is := strings.CutPrefix(name, "@"); is && dict.ValidHandle(handle) && s.o.Handles != nil {
			var err error
			if job.DIDs[i], err = s.o.Handles.Resolve(r.Context(), handle); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		} else if err := CheckDID(name); err != nil {
			return nil, errors.New(name + " " + err.Error())
		}
	}
	return map[string]any{"dids": job.DIDs}, s.Backfill.Resync(r.Context(), batch.Cause{Reason: "operator", Trust: job.TrustHost}, job.DIDs...)
}

// CheckDID returns an error for a DID that no directory could resolve.
func CheckDID(did string) error {
	if strings.HasPrefix(did, "@") {
		return errors.New("is not a handle that can be looked up")
	}
	if !dict.ValidDID(did) {
		return errors.New("is not a DID")
	}
	if id, ok := strings.CutPrefix(did, "did:plc:"); ok && !dict.ValidPLC(id) {
		return errors.New("is not a valid did:plc, which has 24 base32 characters (a-z, 2-7)")
	}
	return nil
}

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, 16<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New("malformed request: " + err.Error())
	}
	return nil
}
