package harness_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestPast makes three indexes of one PDS: from the whole stream alone; from its repos
// alone; and from both, starting in the middle, while the PDS is killed, accounts are
// taken down and restored, and a repo is put back. At the end all three must match the
// PDS.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestPast -peers DIR -v
func TestPast(t *testing.T) {
	kit := peers(t)
	n, seed := seededNetwork(t, kit)
	w := &writer{n: n, rng: rand.New(rand.NewPCG(seed, 8)), clock: uint64(time.Now().UnixMicro()) << 10}
	for range 400 {
		w.step()
	}
	whole := []string{"--plc", fmt.Sprintf("http://127.0.0.1:%d", n.plcPort), "--allow-private-hosts"}
	relay := fmt.Sprintf("ws://127.0.0.1:%d", n.pdsPort)

	// The index with both starts here.
	n.storeName, n.flags = "-both", append([]string{"--backfill", "repos"}, whole...)
	n.follow("--relay", relay)
	down := n.accounts[1]
	must(t, n.client.Takedown(t.Context(), down.Account, true))
	for i := range 300 {
		w.step()
		switch i {
		case 80, 200:
			n.killPDS()
		case 120:
			w.goBack()
		}
	}
	must(t, n.client.Takedown(t.Context(), down.Account, false))
	w.showAll()
	want := n.truth()
	n.awaitRepaired("", 15)
	n.stopIndex()
	n.compareAll("both", want)

	n.storeName, n.flags = "-repos", append([]string{"--backfill", "repos"}, whole...)
	n.follow("--relay", relay)
	n.awaitRepaired("", 15)
	n.stopIndex()
	n.compareAll("repos alone", want)

	n.storeName, n.flags = "-stream", whole // fetches only the repo that the import broke
	n.follow("--relay", relay, "--cursor", "0")
	n.awaitRepaired("", 15)
	n.stopIndex()
	n.compareAll("stream", want)
	t.Logf("%d writes, %d repos, PDS killed %d times", n.writes.Load(), len(want), n.kills["PDS"])
}

// compareAll compares a store with the PDS.
func (n *network) compareAll(what string, want map[string]truthRepo) {
	n.t.Helper()
	x := n.export()
	for did, repo := range want {
		got := x.repos[did]
		if n.broken[did] == "imported" { // the PDS has records without blocks, and does not list them
			for _, records := range got {
				maps.DeleteFunc(records, func(_, subject string) bool { return subject == "" })
			}
			for _, records := range repo {
				maps.DeleteFunc(records, func(_, subject string) bool { return subject == "" })
			}
		}
		if fmt.Sprint(got) == fmt.Sprint(repo) || len(got)+len(repo) == 0 {
			continue
		}
		for kind := range maps.Keys(repo) {
			if !maps.Equal(got[kind], repo[kind]) {
				n.t.Errorf("%s: the %s records of %s: %d, want %d", what, kind, did, len(got[kind]), len(repo[kind]))
			}
		}
	}
	for did, got := range x.repos {
		if _, there := want[did]; !there && len(got) > 0 {
			n.t.Errorf("%s: the deleted %s has %d kinds of records", what, did, len(got))
		}
	}
	for did := range x.desync {
		if _, there := want[did]; there {
			n.t.Errorf("%s: %s is desynchronized", what, did)
		}
	}
	out, err := exec.CommandContext(n.t.Context(), n.binary, "check", "--store", n.store()).CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		n.t.Errorf("%s: check: %d %s", what, exit.ExitCode(), out)
	}
	if n.t.Failed() {
		log, _ := os.ReadFile(n.log.Name())
		n.t.Fatalf("%s; the end of the logs:\n%s", what, strings.TrimSpace(string(log[max(0, len(log)-4000):])))
	}
}
