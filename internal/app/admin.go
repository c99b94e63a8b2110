package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/page"
	"skein.blue/internal/say"
)

// The endpoints for operators and their tools. A browser gets lists as tables.

type adminLink struct{ Path, What string }

// adminLinks lists the endpoints of the admin listener.
var adminLinks = []adminLink{
	{"/gaps", "places in the streams where events may be missing"},
	{"/deadletters", "malformed input that skein dropped (the newest 10,000)"},
	{"/resyncs", "repos queued for a full refetch, and repos that skein gave up on"},
	{"/backfill", "progress of fetching history"},
	{"/metrics", "for Prometheus"},
	{"/healthz", "whether the process answers"},
	{"/readyz", "whether queries are answered"},
	{"/debug/pprof/", "profiles"},
}

// readyTime limits how long the store of a ready node may take to answer.
const readyTime = 2 * time.Second

// errDraining is why a node that is about to stop is not ready.
var errDraining = errors.New("draining: the process is about to stop")

// ready returns nil if queries are answered.
func (s *server) ready(ctx context.Context) error {
	if s.o.drains() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if h, ok := s.KV.(kv.Health); ok {
		if err := h.Healthy(); err != nil && !errors.Is(err, kv.ErrDiskFull) { // queries are answered
			return err
		}
	}
	err := s.Graph.View(ctx, func(s *ask.View) error { _, err := s.Counts(); return err })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the store did not answer within %v: %w", readyTime, err)
	}
	return err
}

// admin returns the handler of the endpoints for operators.
func (s *server) admin() http.Handler {
	mux := http.NewServeMux()
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_ready", Help: "1 if queries are answered, as /readyz says.",
	}, func() float64 {
		if s.ready(context.Background()) != nil {
			return 0
		}
		return 1
	}))
	mux.Handle("/metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		err := s.ready(r.Context())
		if most := r.URL.Query().Get("maxLag"); err == nil && most != "" {
			err = s.fresh.within(most)
		}
		if err != nil {
			http.Error(w, say.Line("not ready: "+err.Error()), http.StatusServiceUnavailable)
			return
		}
		if h, ok := s.KV.(kv.Health); ok {
			if err := h.Healthy(); err != nil {
				_, _ = w.Write([]byte(say.Line("ready, but not indexing: "+err.Error()) + "\n"))
				return
			}
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.HandleFunc("/deadletters", func(w http.ResponseWriter, r *http.Request) {
		serveNotes(s, w, r, read.DeadLetters, "Dead letters", []string{"Time", "Source", "Seq", "DID", "Path", "Reason", "Detail"}, func(d *format.DeadLetter) []any {
			return []any{d.Time, d.Source, d.Seq, d.DID, d.Path, d.Reason, d.Detail}
		})
	})
	mux.HandleFunc("/gaps", func(w http.ResponseWriter, r *http.Request) {
		serveNotes(s, w, r, read.Gaps, "Gaps", []string{"Time", "Source", "After seq", "Reason", "Detail"}, func(g *format.Gap) []any {
			return []any{g.Time, g.Source, g.After, g.Reason, g.Detail}
		})
	})
	s.backfillEndpoints(mux)
	s.checkpointEndpoint(mux)
	mux.HandleFunc("GET /members", s.api.ServeMembers)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if page.WantsHTML(r) {
			s.serveHTML(w, adminPage, s.overview(r.Context(), s.ready(r.Context())))
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("skein:"))
		for _, l := range adminLinks {
			_, _ = w.Write([]byte(" " + l.Path))
		}
		_, _ = w.Write([]byte("\n"))
	})
	return mux
}

const adminStyle = `:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:1rem auto;max-width:80rem;padding:0 1rem}` +
	`table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-top:1px solid #8886;overflow-wrap:anywhere}th{white-space:nowrap}div{overflow-x:auto}`

// adminPolicy allows the pages their style and nothing else.
const adminPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var adminPage = template.Must(template.New("admin").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>skein admin</title><style>` + adminStyle + `</style></head>
<body><main><h1>skein admin</h1><p>{{.State}}</p><ul>{{range .Links}}<li><a href="{{.Path}}">{{.Path}}</a> {{.What}}{{with index $.Counts .Path}}: <b>{{.}}</b>{{end}}</li>{{end}}</ul></main></body></html>
`))

// overview is the content of the operators' page: the state, the links, and the number of
// entries behind each.
type overview struct {
	State  string
	Links  []adminLink
	Counts map[string]string // by path
}

// overview collects it. notReady is the reason why the node does not answer queries.
func (s *server) overview(ctx context.Context, notReady error) *overview {
	edges, counts, cursors, err := s.state(ctx)
	o := &overview{State: "Ready.", Links: adminLinks, Counts: map[string]string{}}
	if err = errors.Join(notReady, err); err != nil {
		o.State = "Not ready: " + say.Line(err.Error())
		return o
	}
	o.State += " " + say.Count(edges) + " records of " + say.Count(counts.Accounts) + " accounts, " + say.Bytes(s.KV.DiskBytes()) + " on disk."
	if c := s.consumer.Load(); c != nil {
		o.State += " Stream state: " + string(c.Status().State) + "."
	}
	for _, c := range cursors {
		o.State += fmt.Sprintf(" Last event of %s: seq %d, %s.", c.Source, c.Seq, c.Time.UTC().Format(time.RFC3339))
	}
	_ = s.KV.View(ctx, func(r kv.Reader) error {
		if gaps, err := read.Gaps(r); err == nil {
			o.Counts["/gaps"] = say.Count(int64(len(gaps)))
		}
		if dead, err := read.DeadLetters(r); err == nil {
			o.Counts["/deadletters"] = say.Count(int64(len(dead)))
		}
		return nil
	})
	if s.Backfill != nil {
		waiting, failed := s.Backfill.Queue()
		o.Counts["/resyncs"] = say.Count(waiting) + " waiting"
		givenUp := int64(0)
		for _, n := range failed {
			givenUp += n
		}
		if givenUp > 0 {
			o.Counts["/resyncs"] += ", " + say.Count(givenUp) + " given up"
		}
	}
	return o
}

var adminTable = template.Must(template.New("table").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{{.Title}} – skein</title><style>` + adminStyle + `</style></head>
<body><main><p><a href="/">skein admin</a></p><h1>{{.Title}}</h1>{{if .Rows}}<p>{{if .More}}The first {{len .Rows}} entries; use <code>curl</code> for all of them.{{else}}Entries: {{len .Rows}}{{end}}</p><div role="region" aria-label="{{.Title}}" tabindex="0"><table><thead><tr>{{range .Columns}}<th scope="col">{{.}}</th>{{end}}</tr></thead>
<tbody>{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>{{else}}<p>None.</p>{{end}}</main></body></html>
`))

// table is the content of adminTable.
type table struct {
	Title   string
	Columns []string
	Rows    [][]any
	More    bool
}

// mostRows bounds a table in a browser.
const mostRows = 1000

// writeJSONLine writes v as a line of JSON that is safe to show on a terminal.
func writeJSONLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(say.EscapeJSON(b), '\n'))
	}
	return err
}

// add adds a row. It formats times for people, and text as one line.
func (t *table) add(cells []any) {
	for i, c := range cells {
		switch c := c.(type) {
		case time.Time:
			if cells[i] = c.UTC().Format(time.RFC3339); c.IsZero() {
				cells[i] = ""
			}
		case string:
			cells[i] = say.Line(c)
		}
	}
	t.Rows = append(t.Rows, cells)
}

func (s *server) serveHTML(w http.ResponseWriter, t *template.Template, data any) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		http.Error(w, say.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	page.Secure(w.Header(), adminPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// serveNotes serves the dead letters or the gaps: one JSON object per line, or a table for
// browsers with the newest first.
func serveNotes[T any](x *server, w http.ResponseWriter, r *http.Request, read func(kv.Reader) ([]T, error), title string, columns []string, row func(*T) []any) {
	var notes []T
	err := x.KV.View(r.Context(), func(r kv.Reader) (err error) { notes, err = read(r); return err })
	if err != nil {
		http.Error(w, say.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	if page.WantsHTML(r) {
		t := table{Title: title, Columns: columns, More: len(notes) > mostRows}
		for i := len(notes) - 1; i >= 0 && len(t.Rows) < mostRows; i-- {
			t.add(row(&notes[i]))
		}
		x.serveHTML(w, adminTable, t)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, n := range notes {
		if err := writeJSONLine(w, n); err != nil {
			return // the client has left
		}
	}
}

// serveResyncs serves the resync queue in the same formats.
func (s *server) serveResyncs(w http.ResponseWriter, r *http.Request) {
	if page.WantsHTML(r) {
		t := table{Title: "Repos queued for a full refetch", Columns: []string{"DID", "State", "Reason", "Queued", "Due", "Tries", "Failure", "Detail"}}
		err := s.eachResync(r.Context(), func(did string, row format.Resync) error {
			if len(t.Rows) < mostRows {
				t.add([]any{did, row.State, row.Reason, row.Queued, row.Due, row.Tries, row.Failure, row.Detail})
			} else {
				t.More = true
			}
			return nil
		})
		if err != nil {
			http.Error(w, say.Line(err.Error()), http.StatusInternalServerError)
			return
		}
		s.serveHTML(w, adminTable, t)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	begun := false
	err := s.eachResync(r.Context(), func(did string, row format.Resync) error {
		begun = true
		return writeJSONLine(w, struct {
			DID string `json:"did"`
			format.Resync
		}{did, row})
	})
	switch {
	case err == nil || r.Context().Err() != nil:
	case !begun:
		http.Error(w, say.Line(err.Error()), http.StatusInternalServerError)
	default: // the client must see that the list is cut short
		s.log.Error("cannot list the resync queue", "error", err)
		panic(http.ErrAbortHandler)
	}
}
