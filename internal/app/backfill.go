package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/syntax"
)

// A Past says which history a daemon fetches automatically.
type Past struct {
	// Archive is the URL of an archive, "" for none.
	Archive string
	// Repos fetches all repos of the relay's hosts.
	Repos bool
}

// runBackfill starts the tasks that fetch history, and repos with missed events.
func (x *Index) runBackfill(t *tasks, past Past, source string) {
	x.listening.source = source
	x.Backfill.SetListening(func() (time.Time, bool) { return x.listening.since(x) })
	x.Backfill.SetLive(x.isLive)
	began := make(chan struct{})
	t.run("backfill", func(ctx context.Context) error {
		// Its start only reads. A cluster that does not answer delays it.
		run := func() error { return x.Backfill.Run(ctx, func() { close(began) }) }
		if err := await(ctx, x.log.With("component", "backfill"), true, run); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	t.run("backfill start", func(ctx context.Context) error {
		select {
		case <-began:
			x.beginPast(ctx, past)
		case <-ctx.Done():
		}
		return nil
	})
}

// beginPast starts fetching history, unless it is already fetched or in progress.
func (x *Index) beginPast(ctx context.Context, past Past) {
	b := x.Graph.Backfill()
	begin := func() error { return nil }
	switch {
	case past.Archive != "" && b.Archive == "" && b.Done[format.DoneArchive+past.Archive].IsZero():
		begin = func() error { return x.Backfill.Archive(ctx, past.Archive) }
	case past.Repos && len(b.Hosts) == 0 && b.Done[format.DoneRepos].IsZero():
		begin = func() error { return x.Backfill.Hosts(ctx) }
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := begin()
		if err == nil || errors.Is(err, backfill.ErrBusy) || ctx.Err() != nil {
			return
		}
		x.log.Warn("cannot start fetching history; retrying", "component", "backfill", "error", err, "retry_in", wait.String())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// ReplaceHosts replaces the hosts of an interrupted backfill by those that are named now. Of the earlier ones, perhaps
// mistyped, it keeps those whose lists have been read in part.
func (x *Index) ReplaceHosts(ctx context.Context, hosts []string) error {
	if b := x.Graph.Backfill(); len(hosts) == 0 || !b.Named {
		return nil
	}
	return x.Graph.ChangeBackfill(ctx, func(b *format.Backfill) {
		before := b.Hosts
		b.Hosts = map[string]format.HostBackfill{}
		for h, at := range before {
			if at.Cursor != "" && !at.Done {
				b.Hosts[h] = at
			}
		}
		for _, h := range hosts {
			h = backfill.HTTPAddress(h)
			b.Hosts[h] = before[h]
		}
	})
}

// listening knows when skein began to follow the stream: in a new store, at its first event.
type listening struct{ source string }

// since returns that time, and whether this process began to follow the stream. If it did, the
// time is the present until the real one is known. An event's time comes from its host, and this
// machine's clock may be wrong, so since uses the time that the first events agree on
// (consumer.HeardSince).
func (l *listening) since(x *Index) (time.Time, bool) {
	if !x.Graph.Made() || l.source == "" { // another process followed it before
		return time.Time{}, false
	}
	if c := x.consumer.Load(); c != nil {
		if at, known := c.HeardSince(); known {
			return at, true
		}
	}
	return time.Now(), true
}

// isLive reports whether everything that the relay has sent is applied, or nearly.
func (x *Index) isLive() bool {
	c := x.consumer.Load()
	return c == nil || c.Status().State == consumer.Live
}

// backfillEndpoints serves skein backfill and skein resync. adminGuard refuses web pages; in
// addition, a POST needs a content type that a page of another site cannot send.
func (x *Index) backfillEndpoints(mux *http.ServeMux) {
	answer := func(w http.ResponseWriter, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = writeJSONLine(w, v)
	}
	refuse := func(w http.ResponseWriter, code int, err error) {
		answer(w, code, map[string]string{"error": err.Error()})
	}
	post := func(path, contentType string, do func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case x.Backfill == nil:
				refuse(w, http.StatusConflict, errors.New("this daemon fetches no repos; it runs with --consume=false or --repair=false"))
				return
			case r.Header.Get("Content-Type") != contentType:
				refuse(w, http.StatusUnsupportedMediaType, errors.New("the content type must be "+contentType))
				return
			}
			// The server's deadlines are for strangers. A relay's list of hosts, a large repo and a
			// slow disk may take minutes, and the operator can end the request.
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Time{})
			_ = control.SetWriteDeadline(time.Time{})
			if err := do(w, r); err != nil {
				code := http.StatusBadRequest
				if errors.Is(err, backfill.ErrBusy) {
					code = http.StatusConflict
				}
				refuse(w, code, err)
			}
		})
	}
	mux.HandleFunc("GET /backfill", func(w http.ResponseWriter, _ *http.Request) {
		if x.Backfill == nil {
			answer(w, http.StatusOK, struct{}{})
			return
		}
		answer(w, http.StatusOK, x.Backfill.StatusNow())
	})
	post("/backfill", "application/json", func(w http.ResponseWriter, r *http.Request) error {
		var job struct {
			Archive string
			Repos   bool
			Hosts   []string
		}
		if err := decode(r, &job); err != nil {
			return err
		}
		var err error
		switch {
		case job.Archive != "":
			err = x.Backfill.Archive(r.Context(), job.Archive)
		case job.Repos || len(job.Hosts) > 0:
			err = x.Backfill.Hosts(r.Context(), job.Hosts...)
		default:
			err = errors.New("nothing to do; set \"archive\", \"hosts\" or \"repos\": true in the request")
		}
		if err == nil {
			answer(w, http.StatusAccepted, x.Backfill.StatusNow())
		}
		return err
	})
	post("/resync", "application/json", func(w http.ResponseWriter, r *http.Request) error {
		var job struct {
			DIDs      []string
			TrustHost bool
		}
		if err := decode(r, &job); err != nil {
			return err
		}
		for _, did := range job.DIDs {
			if err := CheckDID(did); err != nil {
				return errors.New(did + " " + err.Error())
			}
		}
		var err error
		if job.TrustHost {
			err = x.Backfill.Believe(r.Context(), job.DIDs...)
		} else {
			err = x.Backfill.Resync(r.Context(), "operator", job.DIDs...)
		}
		if err == nil {
			answer(w, http.StatusAccepted, x.Backfill.StatusNow())
		}
		return err
	})
	post("/car", "application/vnd.ipld.car", func(w http.ResponseWriter, r *http.Request) error {
		p, err := x.Backfill.PlaceCAR(r.Context(), r.Body)
		if err == nil {
			answer(w, http.StatusOK, p)
		}
		return err
	})
	mux.HandleFunc("GET /resyncs", x.serveResyncs)
}

// CheckDID returns an error for a DID that no directory could resolve.
func CheckDID(did string) error {
	if !syntax.ValidDID(did) {
		return errors.New("is not a DID")
	}
	if id, ok := strings.CutPrefix(did, "did:plc:"); ok && !syntax.ValidPLC(id) {
		return errors.New("is not a valid did:plc: it needs 24 base32 characters (a-z, 2-7) after did:plc:")
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

// eachResync calls each for the repos in the resync queue.
func (x *Index) eachResync(ctx context.Context, each func(did string, row format.Resync) error) error {
	_, err := x.Graph.ViewAcross(ctx, func(s *ask.View) error { return s.Resyncs(each) })
	return err
}
