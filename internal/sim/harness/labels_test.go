package harness_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLabelerOfOthers reads a labeler that we did not write: labels given and taken back, of versions, with
// expiry, while the labeler and the index are killed. In the end, the sets are those of the labels that
// were made.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestLabelerOfOthers -peers DIR -v
func TestLabelerOfOthers(t *testing.T) {
	kit := peers(t)
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "peers.log"))
	must(err)
	binary := filepath.Join(dir, "skein")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "skein.blue/cmd/skein")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building skein: %v\n%s", err, out)
	}
	ports, err := FreePorts(5)
	must(err)
	plc, err := kit.PLC(log, ports[0])
	must(err)
	defer plc.Kill()
	startLabeler := func() *Labeler {
		l, err := kit.Labeler(log, ports[0], ports[1], filepath.Join(dir, "labeler"))
		must(err)
		return l
	}
	l := startLabeler()
	defer func() { l.Kill() }()
	api := fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	startIndex := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, "serve", "--store", filepath.Join(dir, "store"), "--relay", fmt.Sprintf("ws://127.0.0.1:%d", ports[4]),
			"--plc", fmt.Sprintf("http://127.0.0.1:%d", ports[0]), "--allow-private-hosts", "--labelers", l.DID, "--resolver", "off", "--min-free", "0B",
			"--listen", fmt.Sprintf("127.0.0.1:%d", ports[2]), "--admin-listen", fmt.Sprintf("127.0.0.1:%d", ports[3]))
		cmd.Stdout, cmd.Stderr = log, log
		must(cmd.Start())
		return cmd
	}
	index := startIndex()
	defer func() { _ = index.Process.Kill(); _ = index.Wait() }()

	rng := rand.New(rand.NewPCG(26, 1))
	values := []string{"spam", "!hide", "rude"}
	var subjects []string
	for i := range 12 {
		did := "did:plc:" + strings.Repeat("a", 23) + string(rune('a'+i))
		subjects = append(subjects, did, "at://"+did+"/app.bsky.feed.post/3kkkkkkkkkkkk")
	}
	type key struct{ value, subject string }
	live := map[key]map[string]bool{} // by version
	last := time.Now()
	kills := 0
	for step := range 400 {
		k := key{values[rng.IntN(len(values))], subjects[rng.IntN(len(subjects))]}
		label := map[string]any{"uri": k.subject, "val": k.value}
		cid := ""
		if strings.HasPrefix(k.subject, "at://") && rng.IntN(4) == 0 {
			cid = []string{"bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a", "bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"}[rng.IntN(2)]
			label["cid"] = cid
		}
		last = maxTime(last.Add(time.Millisecond), time.Now()) // the labeler's times have milliseconds
		label["cts"] = last.UTC().Format("2006-01-02T15:04:05.000Z")
		if live[k] == nil {
			live[k] = map[string]bool{}
		}
		switch rng.IntN(4) {
		case 0:
			label["neg"] = true
			if delete(live[k], cid); cid == "" {
				clear(live[k])
			}
		case 1: // it will have expired in the end
			label["exp"] = time.Now().Add(time.Duration(rng.IntN(3000)) * time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z")
			delete(live[k], cid)
		default:
			live[k][cid] = true
		}
		must(l.Create(label))
		switch {
		case step%60 == 59:
			l.Kill()
			l = startLabeler()
			kills++
		case step%37 == 36:
			_ = index.Process.Signal(syscall.SIGKILL)
			_ = index.Wait()
			index = startIndex()
			kills++
		}
	}
	ask := func(set string) (members []string, incomplete string) {
		resp, err := http.Get(api + "/xrpc/blue.skein.graph.query?limit=1000&set=" + url.QueryEscape(set))
		if err != nil {
			return nil, err.Error()
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var a struct {
			Members []string
			Reason  string
		}
		if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(b, &a) != nil {
			return nil, fmt.Sprintf("%d %s %v", resp.StatusCode, b, err)
		}
		slices.Sort(a.Members)
		return a.Members, a.Reason
	}
	time.Sleep(3 * time.Second) // the last have expired
	var wrong string
	for range 60 {
		wrong = ""
		for _, value := range values {
			for _, on := range []string{"accounts", "records"} {
				var want []string
				for _, s := range subjects {
					if strings.HasPrefix(s, "at://") == (on == "records") && len(live[key{value, s}]) > 0 {
						want = append(want, s)
					}
				}
				slices.Sort(want)
				if got, why := ask(fmt.Sprintf("labeled(%s, %s, on=%s)", l.DID, value, on)); !slices.Equal(got, want) || why != "" {
					wrong = fmt.Sprintf("%s, %s: %q, want %q: %s", value, on, got, want, why)
				}
			}
		}
		if wrong == "" {
			t.Logf("400 labels, %d kills: the sets are those of the labels", kills)
			return
		}
		time.Sleep(time.Second)
	}
	t.Error(wrong)
}

func maxTime(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}
