package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// joined is a daemon that writes a store with others.
type joined struct {
	*Index

	stop context.CancelFunc
	done chan error
}

// join starts one, from the beginning of a relay.
func join(t *testing.T, store *memkv.Store, url string) *joined {
	t.Helper()
	g, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}, Joins: true, Beat: 50 * time.Millisecond})
	must(t, err)
	x := &Index{Graph: g, KV: store, Registry: prometheus.NewRegistry(), part: true, log: logger(nil), fenced: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	j := &joined{Index: x, stop: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		err := x.Serve(ctx, ServeOptions{
			Listen: "127.0.0.1:0", Ready: func(_, _ net.Addr) { close(ready) },
			Consume: &consumer.Options{Relay: url, Cursor: new(int64), MinBackoff: time.Millisecond},
		})
		j.done <- errors.Join(err, g.Close(context.Background()))
	}()
	select {
	case <-ready:
	case err := <-j.done:
		t.Fatal(err)
	}
	return j
}

// has waits until it has that many partitions, or one more, and applied there what was sent up to a number.
func (j *joined) has(t *testing.T, partitions int, seq int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var parts format.Partitions
		for i := range 1000 {
			if did := fmt.Appendf(nil, "did:plc:a%d", i); j.Graph.Owns(did) {
				parts |= 1 << dict.SharedSettings.PartitionOf(did)
			}
		}
		cursors := j.Graph.Cursors()
		if (parts.Len() == partitions || parts.Len() == partitions+1) && len(cursors) == 1 && int64(cursors[0].Seq) == seq {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it has %d partitions, up to %+v; want %d, up to %d", parts.Len(), cursors, partitions, seq)
		}
	}
}

// Daemons that write one store share its partitions out among themselves, as they come and go, and lose nothing of the stream. All may be
// started alike, from a cursor. One that stops stops no other.
func TestWritersComeAndGo(t *testing.T) {
	all, err := synth.ReadFrames("../../testdata/pds/plain-pds.frames")
	must(t, err)
	r := relay.NewRecorded(all[:300])
	srv := httptest.NewServer(r)
	defer srv.Close()
	store := memkv.Open(memkv.Options{Merger: graph.Merger()})
	one := join(t, store, srv.URL)
	one.has(t, 64, 300)
	two := join(t, store, srv.URL)
	r.Append(all[300:500]...)
	one.has(t, 32, 500)
	two.has(t, 32, 500)
	three := join(t, store, srv.URL)
	one.has(t, 21, 500)
	two.has(t, 21, 500)
	three.has(t, 21, 500)
	r.Append(all[500:700]...)
	one.stop()
	must(t, <-one.done)
	two.has(t, 32, 700)
	three.has(t, 32, 700)
	three.stop()
	must(t, <-three.done)
	r.Append(all[700:]...)
	var m wire.Message
	must(t, wire.Parse(all[len(all)-1], &m))
	two.has(t, 64, int64(m.Seq))
	two.stop()
	must(t, <-two.done)
	g, err := graph.Open(t.Context(), store, graph.Options{ReadOnly: true})
	must(t, err)
	must(t, g.View(t.Context(), func(v *ask.View) error {
		c, err := v.Counts()
		if c.Desynchronized+c.Partial+c.Incomplete > 0 {
			t.Errorf("%+v", c)
		}
		return err
	}))
	must(t, check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil))
	if n := len((&server{Index: &Index{Graph: g}}).accounts(t.Context())); n < 20 {
		t.Errorf("the page of a query node asks about %d accounts", n)
	}
}
