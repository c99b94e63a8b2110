package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// inProcess is a relay in this process.
type inProcess struct {
	server *httptest.Server
	stop   context.CancelFunc
	done   chan struct{}
}

func start(ctx context.Context, o SimulatorOptions) (Simulator, error) {
	const window = 1 << 18 // events: 23 MB. More would exceed the memory limit that the indexer sets, in the same process
	o.Window = min(o.Window, window)
	r := relay.NewSimulated(o.Options)
	ctx, stop := context.WithCancel(ctx)
	s := &inProcess{server: httptest.NewUnstartedServer(r), stop: stop, done: make(chan struct{})}
	if o.Address != "" {
		if err := listenAt(ctx, s.server, o.Address); err != nil {
			stop()
			return nil, err
		}
	}
	s.server.Start()
	go func() { defer close(s.done); r.Run(ctx) }()
	return s, nil
}

func startArchive(ctx context.Context, address string, o network.Options) (Simulator, error) {
	return serveArchive(ctx, address, relay.NewArchive(o))
}

func serveArchive(ctx context.Context, address string, archive http.Handler) (Simulator, error) {
	s := &inProcess{server: httptest.NewUnstartedServer(archive), stop: func() {}, done: make(chan struct{})}
	close(s.done)
	if address != "" {
		if err := listenAt(ctx, s.server, address); err != nil {
			return nil, err
		}
	}
	s.server.Start()
	return s, nil
}

func (s *inProcess) Address() string               { return strings.TrimPrefix(s.server.URL, "http://") }
func (s *inProcess) Usage() (time.Duration, int64) { return 0, 0 }
func (s *inProcess) Kill()                         { _ = s.Stop() }
func (s *inProcess) Stop() error {
	s.stop()
	<-s.done
	s.server.CloseClientConnections()
	s.server.Close()
	return nil
}

// load runs a small load, and returns its metrics, too.
func load(t *testing.T, o Options) (Report, []string, map[string]float64) {
	t.Helper()
	if o.Store.Store == "" {
		o.Store.Store = t.TempDir()
	}
	o.Store.Memory = 64 << 20
	if o.Network.Accounts == 0 {
		o.Network = network.Options{Seed: 7, Accounts: 8192}
	}
	o.Simulator, o.Stderr = start, testWriter{t}
	if o.Archive == nil {
		o.Archive = startArchive
	}
	metrics := map[string]float64{}
	o.Inspect = func(x *app.Index) {
		families, err := x.Registry.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += "," + l.GetValue()
				}
				metrics[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	report, problems, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	return report, problems, metrics
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// want fails the test if the load found a difference, or lost events.
func want(t *testing.T, r Report, problems []string, events int64) {
	t.Helper()
	if !r.Verified || len(problems) > 0 {
		t.Errorf("differences: %s", strings.Join(problems, "\n"))
	}
	if r.Events != events || r.Edges < events/3 {
		t.Errorf("%d events and %d edges, want %d events", r.Events, r.Edges, events)
	}
}

func faults(t *testing.T, list ...string) (f relay.Faults) {
	t.Helper()
	for _, s := range list {
		if err := f.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(f.List(), list) {
		t.Errorf("faults %q read back as %q", list, f.List())
	}
	return f
}

// A network with a history is indexed from its archive, and then from its stream, which deletes records of the
// history; a second load continues it. A store without the whole history is refused.
func TestHistory(t *testing.T) {
	t.Parallel()
	o := Options{Rate: 20_000, Duration: 2 * time.Second, Network: network.Options{Seed: 11, Accounts: 4096, History: 12}}
	o.Store.Store = t.TempDir()
	r, problems, _ := load(t, o)
	if !r.Verified || len(problems) > 0 || r.Events != 40_000 || r.Edges < 4096*12 {
		t.Errorf("%+v %q", r, problems)
	}
	o.Rate, o.Duration = 0, 500*time.Millisecond
	next, problems, m := load(t, o)
	if !next.Verified || len(problems) > 0 || next.Edges <= r.Edges || m["skein_consumer_gaps_total"] > 0 {
		t.Errorf("%+v %q", next, problems)
	}
	o.Network.History++ // another network
	o.Simulator, o.Archive, o.Stderr = start, startArchive, testWriter{t}
	if _, _, err := Run(t.Context(), o); !errors.Is(err, ErrOther) {
		t.Errorf("with the store of another network: %v", err)
	}
}

// A load that was interrupted in the history continues it where it ended.
func TestInterruptedHistory(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("too slow with the race detector; TestHistory reads an archive with it")
	}
	o := Options{Rate: 20_000, Duration: time.Second, Network: network.Options{Seed: 11, Accounts: 2048, History: 100}}
	o.Store.Store, o.Store.Memory = t.TempDir(), 32<<20
	var fetched atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	all := int64(0)
	o.Archive = func(ctx context.Context, address string, n network.Options) (Simulator, error) {
		archive := relay.NewArchive(n)
		all = archive.Records()
		return serveArchive(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "getBlock") && fetched.Add(1) == 30 {
				cancel()
			}
			archive.ServeHTTP(w, r)
		}))
	}
	o.Simulator, o.Stderr = start, testWriter{t}
	if _, _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted load: %v", err)
	}
	const block = 4096 // records
	blocks := (all + block - 1) / block
	fetched.Store(1000) // does not cancel
	r, problems, _ := load(t, o)
	if !r.Verified || len(problems) > 0 || r.Events != 20_000 {
		t.Errorf("%+v %q", r, problems)
	}
	if n := fetched.Load() - 1000; n == 0 || n > blocks-6 {
		t.Errorf("the second load fetched %d of %d blocks", n, blocks)
	}
}

// A load succeeds, and so does another one on the same store.
func TestLoad(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("too slow with the race detector; TestFaults/killed runs the same code")
	}
	dir := t.TempDir()
	o := Options{Rate: 20_000, Duration: 2 * time.Second}
	o.Store.Store = dir
	r, problems, _ := load(t, o)
	want(t, r, problems, 40_000)
	if r.Edges < 25_000 || r.OpsIndexed < 30_000 || r.Lag.P99 <= 0 || r.Lag.P50 > r.Lag.P99 || r.DiskBytes == 0 || r.Interned == 0 {
		t.Errorf("%+v", r)
	}
	o.Rate, o.Duration = 0, time.Second
	next, problems, m := load(t, o)
	if !next.Verified || len(problems) > 0 || next.Edges <= r.Edges || next.Events < 1000 {
		t.Errorf("%+v %q", next, problems)
	}
	if n := m["skein_consumer_gaps_total"]; n > 0 || next.OpsIndexed > next.Events*2 {
		t.Errorf("a relay that continues the sequence: %v gaps, %d operations in %d events", n, next.OpsIndexed, next.Events)
	}
	o.Network = network.Options{Seed: 8, Accounts: 8192}
	if _, _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "seed=7") {
		t.Errorf("a load of another network used the store: %v", err)
	}
}

// With any fault of the relay, at a small rate: no valid event is lost, no edge is
// wrong, nobody had to help, and the metrics report the fault.
func TestFaults(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		r, problems, m := load(t, Options{Rate: 10_000, Duration: 3 * time.Second, Kill: true})
		want(t, r, problems, 30_000)
		if m["skein_consumer_reconnects_total"] < 1 {
			t.Error("no reconnect counted")
		}
		if n := m["skein_consumer_gaps_total"]; n > 0 {
			t.Errorf("%v gaps, although the relay continued its sequence", n)
		}
	})
	if raceDetector {
		return // the other faults differ only in what the relay sends
	}
	t.Run("stalls", func(t *testing.T) {
		t.Parallel()
		r, problems, _ := load(t, Options{Rate: 10_000, Duration: 4 * time.Second, Faults: faults(t, "stall=2s@1s")})
		want(t, r, problems, 40_000)
		if r.Behind.Max < 1000 {
			t.Errorf("at most %v ms behind, want more", r.Behind.Max)
		}
	})
	t.Run("repeats", func(t *testing.T) {
		t.Parallel()
		r, problems, m := load(t, Options{Rate: 10_000, Duration: 3 * time.Second, Faults: faults(t, "repeat=1s@2s")})
		want(t, r, problems, 30_000)
		if n := m["skein_consumer_dropped_total,old_seq"]; n < 9000 {
			t.Errorf("dropped only %v old events", n)
		}
	})
	t.Run("jumps", func(t *testing.T) {
		t.Parallel()
		r, problems, m := load(t, Options{Rate: 10_000, Duration: 3 * time.Second, Faults: faults(t, "jump=10000000@1s")})
		want(t, r, problems, 30_000)
		if n := m["skein_consumer_seq_jumps_total"]; n != 1 {
			t.Errorf("%v jumps, want 1", n)
		}
	})
	t.Run("corrupts", func(t *testing.T) {
		t.Parallel()
		r, problems, m := load(t, Options{Rate: 10_000, Duration: 4 * time.Second, Faults: faults(t, "corrupt=0.01")})
		want(t, r, problems, 40_000)
		for _, reason := range []string{"frame", "commit_block", "block_hash"} {
			if m["skein_consumer_dropped_total,"+reason] == 0 {
				t.Errorf("nothing dropped for %s", reason)
			}
		}
		if m["skein_consumer_gaps_total"] < 100 {
			t.Errorf("only %v gaps", m["skein_consumer_gaps_total"])
		}
	})
	t.Run("bursts", func(t *testing.T) {
		r, problems, _ := load(t, Options{Rate: 5000, Duration: 12 * time.Second, Faults: faults(t, "burst=10x1s@1s")})
		want(t, r, problems, 60_000)
		if r.Seconds > 6 { // 3 s with the burst, 12 s without
			t.Errorf("took %v s", r.Seconds)
		}
	})
}

// Any single change of the index that the model does not have is found.
func TestDifferencesAreFound(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine, and too slow with the race detector")
	}
	const events = 20_000
	o := Options{Network: network.Options{Seed: 9, Accounts: 4096}, Stderr: testWriter{t}}
	changes := map[string]func(b *batch.Batch, r *record, n *network.Network){
		"nothing": func(*batch.Batch, *record, *network.Network) {},
		"a missing record": func(b *batch.Batch, r *record, n *network.Network) {
			commit(b, n, r)
			b.AddDelete(r.kind, tid(r.tid))
		},
		"an extra record": func(b *batch.Batch, r *record, n *network.Network) {
			commit(b, n, r)
			b.AddPut(r.kind, tid(r.tid+7), n.AppendDID(nil, 5))
		},
		"another subject": func(b *batch.Batch, r *record, n *network.Network) {
			commit(b, n, r)
			b.AddPut(r.kind, tid(r.tid), n.AppendDID(nil, int(r.subject)^1))
		},
		"a set is not empty": func(b *batch.Batch, _ *record, n *network.Network) {
			// Blocks by accounts that have none, which the network deleted long
			// ago.
			for account := range 3000 {
				b.AddCommit(20_001, &batch.Commit{DID: n.AppendDID(nil, account), Rev: tid(1 << 61), Since: tid(3), Data: make([]byte, 32)})
				b.AddPut(network.Block, tid(1<<60), n.AppendDID(nil, 4000))
			}
		},
		"an account is hidden": func(b *batch.Batch, r *record, n *network.Network) {
			b.AddAccount(events+1, n.AppendDID(nil, int(r.account)), false, false)
		},
		"a repo is desynchronized": func(b *batch.Batch, r *record, n *network.Network) {
			b.AddSync(events+1, &batch.Commit{DID: n.AppendDID(nil, int(r.account)), Rev: tid(1 << 61), Data: make([]byte, 32)})
		},
	}
	for what, change := range changes {
		for _, every := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, one in %d", what, every), func(t *testing.T) {
				x, err := app.OpenIndex(t.Context(), app.StoreOptions{Store: t.TempDir(), Create: true, Memory: 64 << 20})
				if err != nil {
					t.Fatal(err)
				}
				var b batch.Batch
				var e network.Event
				n := network.New(o.Network)
				f := NewFeeder(n)
				for range events {
					n.Next(&e)
					f.Add(&b, &e, 0)
				}
				m := newModel(o.Network, relay.Faults{}, every)
				if err := m.run(t.Context(), events); err != nil {
					t.Fatal(err)
				}
				all, _ := m.live()
				var r *record
				for i := range all { // a record that the sample has in both directions
					if c := &all[i]; c.kind == network.Follow && m.actor(c.account) && m.subject(c.subject, 0) && !m.repos[c.account].Hidden && !m.repos[c.subject].Hidden && (r == nil || c.tid < r.tid) {
						r = c
					}
				}
				change(&b, r, n)
				b.Seen(events+1, nil)
				if err := x.Graph.Apply(t.Context(), "load:test", &b); err != nil {
					t.Fatal(err)
				}
				for x.Graph.Erasing() {
					if err := x.Graph.EraseSlice(t.Context()); err != nil {
						t.Fatal(err)
					}
				}

				problems, sets, err := verify(t.Context(), x, m)
				if err != nil || sets < 1000 {
					t.Fatal(sets, err)
				}
				if (len(problems) > 0) == (what == "nothing") {
					t.Errorf("%d problems: %q", len(problems), problems)
				}
				if err := x.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func commit(b *batch.Batch, n *network.Network, r *record) {
	b.AddCommit(20_001, &batch.Commit{DID: n.AppendDID(nil, int(r.account)), Rev: tid(1 << 61), Since: tid(3), Data: make([]byte, 32)})
}

func tid(n uint64) []byte { return dict.AppendTID(nil, n) }

// listenAt makes a server listen on the address of an earlier one.
func listenAt(ctx context.Context, s *httptest.Server, address string) error {
	if err := s.Listener.Close(); err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	for tries := 0; err != nil && tries < 300; tries++ { // somebody's connection has got the port meanwhile
		time.Sleep(100 * time.Millisecond)
		ln, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	s.Listener = ln
	return err
}
