package app_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// asOf returns the time that an answer names, zero if it names none.
func asOf(t *testing.T, address string) (at time.Time) {
	t.Helper()
	_, header, _ := get(t, address, nil)
	if s := header.Get("Skein-As-Of"); s != "" {
		var err error
		at, err = time.Parse(time.RFC3339, s)
		must(t, err)
	}
	return at
}

// newestOf returns the time of the newest event that a store has.
func newestOf(x *app.Index) (at time.Time) {
	for _, c := range x.Graph.Cursors() {
		if c.Time.After(at) {
			at = c.Time
		}
	}
	return at.Truncate(time.Second)
}

// Every answer names the time of the newest event that it includes: with a consumer, before and after
// more events, and without one. /readyz compares how far the index is behind.
func TestAnswersAreDated(t *testing.T) {
	all, err := synth.ReadFrames(plainPDS)
	must(t, err)
	r := relay.NewRecorded(nil)
	srv := httptest.NewServer(r)
	defer srv.Close()
	dir := t.TempDir()
	x, closeIt := open(t, dir, nil)
	base, admin, stop := serve(t, x, &consumer.Options{Relay: srv.URL, Cursor: new(int64)})
	if at := asOf(t, base+"/xrpc/blue.skein.graph.getStats"); !at.IsZero() {
		t.Errorf("without an event: %v", at)
	}
	if code, _, why := get(t, admin+"/readyz?maxLag=1000000h", nil); code != http.StatusServiceUnavailable || !strings.Contains(why, "no event") {
		t.Errorf("without an event: %d %s", code, why)
	}
	paths := []string{base + "/xrpc/blue.skein.graph.getStats", base + "/xrpc/blue.skein.graph.query?set=x", base + "/xrpc/none", base + "/", admin + "/readyz", admin + "/metrics", admin + "/none"}
	was := time.Time{}
	for _, part := range [][][]byte{all[:1000], all[1000:]} {
		r.Append(part...)
		var last wire.Message
		must(t, wire.Parse(part[len(part)-1], &last))
		waitForCursor(t, base, int64(last.Seq))
		var want time.Time
		eventually(t, "answers are of the newest event", func() bool {
			want = newestOf(x)
			return want.After(was) && asOf(t, paths[0]).Equal(want)
		})
		for _, path := range paths {
			if at := asOf(t, path); !at.Equal(want) || !at.After(was) {
				t.Errorf("%s: %v, want %v, after %v", path, at, want, was)
			}
		}
		was = want
	}
	stop()
	var archived batch.Batch
	archived.Seen(1, []byte("2096-01-01T00:00:00Z"))
	must(t, x.Graph.Apply(t.Context(), graph.RosterArchive+"https://archive.example.com", &archived))
	closeIt()
	x, _ = open(t, dir, nil)
	base, admin, _ = serve(t, x, nil)
	if _, _, stats := get(t, base+"/xrpc/blue.skein.graph.getStats", nil); strings.Contains(stats, "archive") {
		t.Errorf("an archive is no relay: %s", stats)
	}
	for _, path := range []string{base + "/xrpc/blue.skein.graph.getStats", admin + "/readyz"} {
		if at := asOf(t, path); !at.Equal(was) {
			t.Errorf("without a consumer, %s: %v, want %v", path, at, was)
		}
	}
	for lag, want := range map[string]string{"1000000h": "", "1m": "behind, which is more than 1m0s", "soon": "maxLag"} {
		code, _, why := get(t, admin+"/readyz?maxLag="+lag, nil)
		if (code == http.StatusOK) != (want == "") || !strings.Contains(why, want) {
			t.Errorf("within %s: %d %s", lag, code, why)
		}
	}
}
