package harness_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/oracle"
)

var (
	peersDir = flag.String("peers", "", "folder into which .ci/peers installed the PDS, PLC directory and relay")
	chaosFor = flag.Duration("chaos.for", 4*time.Minute, "approximate duration of TestChaos")
	seedFlag = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0: random")
)

// TestChaos follows the reference PDS, then indigo's relay, then the PDS again, and
// last a PDS that restarts its sequence, with one store, over connections that are cut
// within frames and stall, while the index, the PDS and the relay are killed. At the
// end of each part every record and every set must match the PDS, and no repo may be
// desynchronized if its chain of commits in the stream is whole.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestChaos -peers DIR -v
func TestChaos(t *testing.T) {
	kit := peers(t)
	n, _ := seededNetwork(t, kit)
	n.flags = []string{"--repair=false"} // missed events must show; TestPast repairs them
	part := *chaosFor / 4

	n.follow("--relay", "ws://"+n.pdsProxy.Addr, "--cursor", "0")
	n.rough(part, true, n.killIndex, n.killPDS)
	n.settleAndCompare("following the PDS")

	n.follow("--relay", "ws://"+n.relayProxy.Addr, "--cursor", "0")
	n.rough(part, false, n.killIndex, n.killPDS, n.killRelay)
	n.settleAndCompare("following the relay")

	n.follow("--relay", "ws://"+n.pdsProxy.Addr)
	n.rough(part, false, n.killIndex, n.killPDS)
	n.settleAndCompare("following the PDS again")

	n.replacePDS()
	n.rough(part, false, n.killIndex)
	n.settleAndCompare("following a PDS with a new sequence")
	cuts, stalls := n.pdsProxy.Done()
	cuts2, stalls2 := n.relayProxy.Done()
	t.Logf("killed: index %d times, PDS %d, relay %d; %d connections cut, %d stalled; %d writes; compared %d records and %d sets",
		n.kills["index"], n.kills["PDS"], n.kills["relay"], cuts+cuts2, stalls+stalls2, n.writes.Load(), n.comparedRecords, n.comparedSets)
}

// network is a PDS, a relay that crawls it, an index that follows one of them, and the
// expected content of the index.
type network struct {
	t    *testing.T
	kit  *Kit
	rng  *rand.Rand
	log  *os.File
	dir  string
	data string // of the PDS

	plcPort, pdsPort, relayPort, metricsPort int
	plc, pds, relay                          *Process
	pdsProxy, relayProxy                     *Proxy
	client                                   *Client

	binary    string
	index     *index
	storeName string
	flags     []string // additional flags of the index

	accounts []*account
	gone     map[string]truthRepo // repos of a replaced PDS
	old      []string             // their DIDs
	broken   map[string]string    // repos with a broken chain in a followed stream, with the place
	deleted  map[string]bool

	kills                         map[string]int
	writes                        atomic.Int64
	comparedRecords, comparedSets int
}

type account struct {
	Account
	live []Write // created records
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// peers returns the programs in the folder that the flag names, and skips the test without it.
func peers(t *testing.T) *Kit {
	t.Helper()
	if *peersDir == "" {
		t.Skip("needs programs of others: install them with .ci/peers DIR, and use -peers DIR")
	}
	kit, err := Find(*peersDir)
	must(t, err)
	return kit
}

// seededNetwork makes a network from -chaos.seed, or a random seed, which it logs.
func seededNetwork(t *testing.T, kit *Kit) (n *network, seed uint64) {
	t.Helper()
	if seed = *seedFlag; seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed %d", seed)
	return newNetwork(t, kit, seed), seed
}

func newNetwork(t *testing.T, kit *Kit, seed uint64) *network {
	t.Helper()
	n := &network{
		t: t, kit: kit, rng: rand.New(rand.NewPCG(seed, 5)), dir: t.TempDir(),
		gone: map[string]truthRepo{}, broken: map[string]string{}, deleted: map[string]bool{}, kills: map[string]int{},
	}
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	var err error
	n.log, err = os.Create(filepath.Join(n.dir, "peers.log"))
	must(err)
	n.binary = filepath.Join(n.dir, "skein")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", n.binary, "skein.blue/cmd/skein")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("building skein: %v\n%s", err, out)
	}
	ports, err := FreePorts(4)
	must(err)
	n.plcPort, n.pdsPort, n.relayPort, n.metricsPort = ports[0], ports[1], ports[2], ports[3]
	n.data = filepath.Join(n.dir, "pds")
	n.plc, err = kit.PLC(n.log, n.plcPort)
	must(err)
	t.Cleanup(func() { n.plc.Kill() })
	n.pds, err = kit.PDS(n.log, n.plcPort, n.pdsPort, n.data)
	must(err)
	t.Cleanup(func() { n.pds.Kill() })
	must(kit.Crawl(n.log, n.relayDir(), n.pdsPort, 0))
	n.relay, err = kit.Relay(n.log, n.plcPort, n.relayPort, n.metricsPort, n.relayDir())
	must(err)
	t.Cleanup(func() { n.relay.Kill() })
	n.pdsProxy, err = NewProxy(fmt.Sprintf("127.0.0.1:%d", n.pdsPort), seed)
	must(err)
	t.Cleanup(n.pdsProxy.Close)
	n.relayProxy, err = NewProxy(fmt.Sprintf("127.0.0.1:%d", n.relayPort), seed+1)
	must(err)
	t.Cleanup(n.relayProxy.Close)
	n.client = NewClient(n.pdsPort)
	time.Sleep(2 * time.Second) // wait until the relay subscribes live
	n.makeAccounts("a", 12)
	return n
}

func (n *network) relayDir() string { return filepath.Join(n.dir, "relay") }

func (n *network) makeAccounts(prefix string, count int) {
	n.t.Helper()
	for i := range count {
		a, err := n.client.CreateAccount(n.t.Context(), fmt.Sprintf("user-%s%d", prefix, i))
		must(n.t, err)
		n.accounts = append(n.accounts, &account{Account: a})
	}
}

// rough writes for a while, and now and then calls one of the kills. With odd, it also
// puts the repo of the first account back to an older state.
func (n *network) rough(for_ time.Duration, odd bool, kills ...func()) {
	n.t.Helper()
	n.pdsProxy.Gentle(false)
	n.relayProxy.Gentle(false)
	ctx, cancel := context.WithTimeout(n.t.Context(), for_)
	defer cancel()
	var wg sync.WaitGroup
	seed := n.rng.Uint64()
	wg.Go(func() {
		w := &writer{n: n, rng: rand.New(rand.NewPCG(seed, 6)), clock: uint64(time.Now().UnixMicro()) << 10}
		for i := 0; ctx.Err() == nil; i++ {
			w.step()
			if odd && i == 150 {
				w.goBack()
			}
		}
		w.showAll()
	})
	for ctx.Err() == nil {
		select {
		case <-time.After(3*time.Second + time.Duration(n.rng.IntN(4000))*time.Millisecond):
			kills[n.rng.IntN(len(kills))]()
		case <-ctx.Done():
		}
	}
	wg.Wait()
}

// writer makes writes, one after the other.
type writer struct {
	n     *network
	rng   *rand.Rand
	clock uint64
}

func (w *writer) tid() string {
	w.clock += 1 + w.rng.Uint64N(1<<20)
	return oracle.TID(w.clock)
}

func (w *writer) write(a *account, writes ...Write) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.n.client.ApplyWrites(ctx, a.Account, writes...); err != nil {
		time.Sleep(100 * time.Millisecond) // the PDS may be down; it does not matter whether it has the write
		return
	}
	w.n.writes.Add(int64(len(writes)))
	for _, x := range writes {
		if x.Value != nil {
			a.live = append(a.live, x)
		}
	}
}

func (w *writer) create() Write {
	collection := []string{"app.bsky.graph.follow", "app.bsky.feed.like", "app.bsky.feed.repost", "app.bsky.graph.block", "app.bsky.feed.like"}[w.rng.IntN(5)]
	x := Write{Collection: collection, Rkey: w.tid()}
	other := w.n.accounts[w.rng.IntN(len(w.n.accounts))].DID
	if strings.HasPrefix(collection, "app.bsky.graph") {
		x.Value = map[string]any{"subject": other}
	} else {
		uri := fmt.Sprintf("at://%s/app.bsky.feed.post/3k%011d", other, 22222222222+w.rng.IntN(5))
		x.Value = map[string]any{"subject": map[string]any{"uri": uri, "cid": "bafyreib2rxk3rybk3aobmv5cjuql3bm2twh4jo5uxgf5kpqcsgz7soitae"}}
	}
	if w.rng.IntN(40) == 0 {
		x.Value = map[string]any{"subject": "not a subject"}
	}
	return x
}

// step makes one change of the network.
func (w *writer) step() {
	n := w.n
	a := n.accounts[w.rng.IntN(len(n.accounts))]
	if n.deleted[a.DID] {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch k := w.rng.IntN(1000); {
	case k < 600 || len(a.live) < 5:
		w.write(a, w.create())
	case k < 700: // several records at once
		var all []Write
		for range 2 + w.rng.IntN(20) {
			all = append(all, w.create())
		}
		w.write(a, all...)
	case k < 900: // a delete, sometimes followed by the same record
		i := w.rng.IntN(len(a.live))
		x := a.live[i]
		a.live = slices.Delete(a.live, i, i+1)
		gone := x
		gone.Value = nil
		if k < 880 {
			w.write(a, gone)
		} else {
			w.write(a, gone, x)
		}
	case k < 960: // a second record with the same subject, or a new subject for a record
		x := a.live[w.rng.IntN(len(a.live))]
		if k < 930 {
			x.Rkey = w.tid()
			w.write(a, x)
		} else if y := w.create(); y.Collection == x.Collection {
			x.Value, x.Update = y.Value, true
			w.write(a, x)
		}
	case k < 975:
		_ = n.client.Deactivate(ctx, a.Account) // errors do not matter: showAll runs at the end
		time.Sleep(50 * time.Millisecond)
		_ = n.client.Activate(ctx, a.Account)
	case k < 985:
		_ = n.client.Takedown(ctx, a.Account, true)
		time.Sleep(50 * time.Millisecond)
		_ = n.client.Takedown(ctx, a.Account, false)
	case k < 996: // import the repo unchanged, and announce it
		if car, err := n.client.GetRepo(ctx, a.DID); err == nil && n.client.ImportRepo(ctx, a.Account, car) == nil {
			_ = n.client.Activate(ctx, a.Account)
		}
	case k < 998 && len(n.accounts)-len(n.deleted) > 8 && a != n.accounts[0]: // goBack needs the first account
		if n.client.DeleteAccount(ctx, a.Account) == nil {
			n.deleted[a.DID] = true
		}
	}
}

// goBack puts the first account's repo back to its state some writes ago.
func (w *writer) goBack() {
	a := w.n.accounts[0]
	ctx := context.Background()
	for range 100 {
		car, err := w.n.client.GetRepo(ctx, a.DID)
		if err != nil {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		for range 5 {
			w.write(a, w.create())
		}
		if w.n.client.ImportRepo(ctx, a.Account, car) == nil {
			w.write(a, w.create())
			w.n.broken[a.DID] = "imported"
			return
		}
	}
}

// showAll activates all accounts, and makes a last commit in each, so that earlier
// losses show in its chain.
func (w *writer) showAll() {
	ctx := context.Background()
	for _, a := range w.n.accounts {
		for try := 0; !w.n.deleted[a.DID]; try++ {
			err := errors.Join(w.n.client.Takedown(ctx, a.Account, false), w.n.client.Activate(ctx, a.Account), w.n.client.ApplyWrites(ctx, a.Account, w.create()))
			if err == nil {
				break
			}
			if try > 100 {
				w.n.t.Errorf("%s: %v", a.DID, err)
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// index is a running skein serve.
type index struct {
	cmd        *exec.Cmd
	api, admin string
	done       chan struct{}
}

// follow stops the index if it runs, and starts it with these arguments.
func (n *network) follow(args ...string) {
	n.t.Helper()
	n.stopIndex()
	n.index = n.startIndex(args...)
}

func (n *network) store() string { return filepath.Join(n.dir, "store"+n.storeName) }

// again returns the arguments for a restart of the index.
func again(args []string) []string {
	if i := slices.Index(args, "--cursor"); i >= 0 { // stored by now
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	return slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--force-cursor" })
}

func (n *network) startIndex(args ...string) *index {
	n.t.Helper()
	x := &index{done: make(chan struct{})}
	x.cmd = exec.CommandContext(context.Background(), n.binary, append([]string{
		"serve", "--store", n.store(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--memory", "64MiB",
	}, slices.Concat(n.flags, args)...)...)
	out, err := x.cmd.StderrPipe()
	if err == nil {
		err = x.cmd.Start()
	}
	must(n.t, err)
	ready := make(chan struct{})
	var tail bytes.Buffer
	go func() {
		defer close(x.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(n.log, lines.Text())
			fmt.Fprintln(&tail, lines.Text())
			var l struct{ Msg, API, Admin string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "answering" {
				x.api, x.admin = l.API, l.Admin
				close(ready)
			}
		}
		_ = x.cmd.Wait()
	}()
	n.t.Cleanup(func() { _ = x.cmd.Process.Kill() })
	select {
	case <-ready:
	case <-x.done:
		n.t.Fatalf("the index exited: %s", tail.String())
	case <-time.After(time.Minute):
		n.t.Fatal("the index is not ready")
	}
	return x
}

func (n *network) stopIndex() {
	if n.index == nil {
		return
	}
	_ = n.index.cmd.Process.Signal(syscall.SIGTERM)
	<-n.index.done
	if code := n.index.cmd.ProcessState.ExitCode(); code != 0 {
		n.t.Errorf("the index exited with %d", code)
	}
	n.index = nil
}

func (n *network) killIndex() {
	args := again(n.index.cmd.Args[2:])
	_ = n.index.cmd.Process.Kill()
	<-n.index.done
	n.kills["index"]++
	i := slices.Index(args, "--relay")
	n.index = n.startIndex(args[i : i+2]...)
}

func (n *network) killPDS() {
	n.pds.Kill()
	n.kills["PDS"]++
	n.startPDS()
}

func (n *network) startPDS() {
	n.t.Helper()
	var err error
	n.pds, err = n.kit.PDS(n.log, n.plcPort, n.pdsPort, n.data)
	must(n.t, err)
}

func (n *network) killRelay() {
	n.relay.Kill()
	n.kills["relay"]++
	var err error
	n.relay, err = n.kit.Relay(n.log, n.plcPort, n.relayPort, n.metricsPort, n.relayDir())
	must(n.t, err)
}

// replacePDS replaces the followed PDS by one without data. The index must wait for an
// operator, and continue after the decision.
func (n *network) replacePDS() {
	n.t.Helper()
	n.pdsProxy.Gentle(true)
	n.follow("--relay", "ws://"+n.pdsProxy.Addr)
	before := n.stats()
	n.gone = n.truth()
	for _, a := range n.accounts {
		n.old = append(n.old, a.DID)
	}
	n.pds.Kill()
	n.data = filepath.Join(n.dir, "pds2")
	n.startPDS()
	n.accounts = nil
	for began := time.Now(); n.stats().State != "blocked"; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			n.t.Fatalf("a PDS with a new sequence does not block the index: %+v", n.stats())
		}
	}
	n.makeAccounts("b", 8)
	w := &writer{n: n, rng: rand.New(rand.NewPCG(1, 7)), clock: uint64(time.Now().UnixMicro()) << 10}
	for range 100 {
		w.step()
	}
	n.killIndex()
	for began := time.Now(); n.stats().State != "blocked"; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			n.t.Fatalf("not blocked after a restart: %+v", n.stats())
		}
	}
	if after := n.stats(); after.Cursor != before.Cursor || !maps.Equal(after.Records, before.Records) {
		n.t.Errorf("the blocked index applied something: %+v, before %+v", after, before)
	}
	n.follow("--relay", "ws://"+n.pdsProxy.Addr, "--cursor", "0", "--force-cursor")
	if gaps := n.get(n.index.admin + "/gaps"); !strings.Contains(gaps, `"future_cursor"`) {
		n.t.Errorf("no gap for the decision: %s", gaps)
	}
}

func (n *network) get(url string) string {
	n.t.Helper()
	resp, err := http.Get(url)
	must(n.t, err)
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil || resp.Body.Close() != nil {
		n.t.Fatal(err)
	}
	return b.String()
}

type stats struct {
	State   string
	Cursor  int64
	Records map[string]int64
}

func (n *network) stats() (s stats) {
	n.t.Helper()
	must(n.t, json.Unmarshal([]byte(n.ask("")), &s))
	return s
}

// truthRepo is the content of a repo: the subject by kind and record key.
type truthRepo map[string]map[string]string

// truth reads all repos of the PDS.
func (n *network) truth() map[string]truthRepo {
	n.t.Helper()
	all := maps.Clone(n.gone)
	for _, a := range n.accounts {
		if n.deleted[a.DID] {
			continue
		}
		repo := truthRepo{}
		for _, k := range kinds.All {
			records, err := n.client.ListRecords(n.t.Context(), a.DID, k.Collection)
			must(n.t, err)
			for _, r := range records {
				if repo[k.Name] == nil {
					repo[k.Name] = map[string]string{}
				}
				repo[k.Name][r.Rkey] = subjectOf(&k, r.Value)
			}
		}
		all[a.DID] = repo
	}
	return all
}

// subjectOf returns the subject of a record, as docs/semantics.md defines it.
func subjectOf(k *kinds.Info, value json.RawMessage) string {
	for _, key := range k.To.Field {
		var m map[string]json.RawMessage
		if json.Unmarshal(value, &m) != nil {
			return ""
		}
		value = m[key]
	}
	var s string
	if json.Unmarshal(value, &s) != nil || !k.To.Form.Valid([]byte(s)) {
		return ""
	}
	return s
}

// exported is the content of an index: its repos, and which are desynchronized.
type exported struct {
	repos  map[string]truthRepo
	desync map[string]bool
}

func (n *network) export() exported {
	n.t.Helper()
	x := exported{map[string]truthRepo{}, map[string]bool{}}
	cmd := exec.CommandContext(n.t.Context(), n.binary, "export", "--store", n.store())
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("export: %v", err)
	}
	for line := range bytes.Lines(out) {
		var l struct {
			Account *struct {
				DID            string
				Desynchronized bool
			}
			DID, Kind string
			Records   [][2]string
		}
		must(n.t, json.Unmarshal(line, &l))
		if l.Account != nil && l.Account.Desynchronized {
			x.desync[l.Account.DID] = true
		}
		if l.DID != "" {
			if x.repos[l.DID] == nil {
				x.repos[l.DID] = truthRepo{}
			}
			if x.repos[l.DID][l.Kind] == nil {
				x.repos[l.DID][l.Kind] = map[string]string{}
			}
			for _, r := range l.Records {
				x.repos[l.DID][l.Kind][r[0]] = r[1]
			}
		}
	}
	return x
}

// settleAndCompare waits until the index has everything that the PDS has, and compares
// them.
func (n *network) settleAndCompare(when string) {
	n.t.Helper()
	n.pdsProxy.Gentle(true)
	n.relayProxy.Gentle(true)
	n.chains(when)
	want := n.truth()
	var differences []string
	for began := time.Now(); ; {
		differences = n.compareSets(want)
		if len(differences) == 0 || time.Since(began) > 90*time.Second {
			break
		}
		time.Sleep(time.Second)
		n.chains(when) // the relay may have lagged
	}
	args := again(n.index.cmd.Args[2:])
	n.stopIndex()
	x := n.export()
	for did, repo := range want {
		if why, broken := n.broken[did]; broken {
			n.t.Logf("%s: skipping %s: %s", when, did, why)
			continue
		}
		if got := x.repos[did]; fmt.Sprint(got) != fmt.Sprint(repo) && (len(got) > 0 || len(repo) > 0) {
			n.t.Errorf("%s: the records of %s: got %v, want %v", when, did, got, repo)
		}
		for _, records := range repo {
			n.comparedRecords += len(records)
		}
	}
	for did := range x.desync {
		if _, broken := n.broken[did]; !broken {
			n.t.Errorf("%s: %s is desynchronized although its chain is whole", when, did)
		}
	}
	for did, why := range n.broken {
		if why == "imported" && !x.desync[did] {
			n.t.Errorf("%s: %s was put back, and is not desynchronized", when, did)
		}
		if !x.desync[did] && !n.deleted[did] && why != "imported" {
			n.t.Logf("%s: %s has a broken chain (%s) that the index has not seen", when, did, why)
		}
	}
	if out, err := exec.CommandContext(n.t.Context(), n.binary, "check", "--store", n.store()).CombinedOutput(); err != nil {
		n.t.Errorf("%s: check: %s", when, out)
	}
	for _, d := range differences[:min(len(differences), 20)] {
		n.t.Errorf("%s: %s", when, d)
	}
	if n.t.Failed() {
		log, _ := os.ReadFile(n.log.Name())
		n.t.Fatalf("%s; the end of the logs:\n%s", when, log[max(0, len(log)-6000):])
	}
	n.t.Logf("%s: %d repos match the PDS, %d are known to be broken, %d are desynchronized", when, len(want), len(n.broken), len(x.desync))
	i := slices.Index(args, "--relay")
	n.index = n.startIndex(args[i : i+2]...)
}

// compareSets asks for every set, and ignores the edges of broken repos.
func (n *network) compareSets(want map[string]truthRepo) (differences []string) {
	n.t.Helper()
	sets := map[string]map[string]bool{}
	add := func(set, member string) {
		if sets[set] == nil {
			sets[set] = map[string]bool{}
		}
		if member != "" {
			sets[set][member] = true
		}
	}
	for did, repo := range want {
		_, broken := n.broken[did]
		for _, k := range kinds.All {
			if !k.HasSets() {
				continue
			}
			if !broken {
				add(k.Forward+"("+did+")", "")
			}
			for _, subject := range repo[k.Name] {
				if subject == "" || k.To.Is().String() == "uri" && !strings.HasPrefix(subject, "at://did:") {
					continue
				}
				if !broken {
					add(k.Forward+"("+did+")", subject)
					add(k.Reverse+"("+subject+")", did)
				} else {
					add(k.Reverse+"("+subject+")", "")
				}
			}
		}
	}
	n.comparedSets += len(sets)
	for set, members := range sets {
		got, _, err := oracle.Members(n.t.Context(), n.index.api, set, 1000)
		must(n.t, err)
		for _, m := range got {
			_, broken := n.broken[m]
			if !members[m] && !broken {
				// Forward sets do not contain deleted accounts.
				differences = append(differences, fmt.Sprintf("%s has the extra member %s", set, m))
			}
		}
		for m := range members {
			if !slices.Contains(got, m) && !n.deleted[m] {
				differences = append(differences, fmt.Sprintf("%s lacks %s", set, m))
			}
		}
	}
	return differences
}

// chains reads the whole streams of the PDS and the relay, and notes the repos with a
// commit that does not continue the previous one.
func (n *network) chains(when string) {
	n.t.Helper()
	for name, port := range map[string]int{"PDS": n.pdsPort, "relay": n.relayPort} {
		if name == "relay" && len(n.gone) > 0 {
			continue // no longer followed
		}
		broken, err := readChains(n.t.Context(), port)
		if err != nil {
			n.t.Fatalf("%s: reading the %s's stream: %v", when, name, err)
		}
		for did, why := range broken {
			if n.broken[did] == "" {
				n.broken[did] = "in the " + name + "'s stream, " + why
			}
		}
	}
}
