package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/sim/harness"
)

// A daemon with watches is killed, again and again, while a stream comes; so is the receiver of its webhooks. Of everything that it sends,
// the set is left. The changes are those in the file, too. skein watch, which is stopped meanwhile, prints what has changed since.
func TestWatchesSurviveKills(t *testing.T) {
	t.Parallel()
	kills := harness.Size(3, 50)
	dir := t.TempDir()
	out, file, state := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "watches"), filepath.Join(dir, "state")
	set := "union(followers(" + known + "),follows(" + known + "))"
	hooked, filed := map[string]bool{}, map[string]bool{}
	seen := map[string]bool{}
	var mu sync.Mutex // guards these three
	apply := func(members map[string]bool, id, body string) {
		var m struct {
			Type string
			Data struct{ Member, Watch string }
		}
		if err := json.Unmarshal([]byte(body), &m); err != nil || m.Data.Watch == "" {
			t.Errorf("%s: %v", body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if key := m.Data.Watch + id; !seen[key] {
			seen[key], members[m.Data.Member] = true, m.Type == "entered"
		}
	}
	receive := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			apply(hooked, r.Header.Get("webhook-id"), string(body))
		}
	})
	at, end := listen(t, "", receive)
	write(t, file, "# a webhook and a file\nhooked = "+set+" -> http://"+at+"/x\nfiled = "+set+" -> file:"+out+"\n")
	env := []string{"SKEIN_RELAY=" + playRecording(t, last/(4+kills)), "SKEIN_WATCH_SECRET=whsec_YSBrZXkgb2YgMjQgYnl0ZXMgb3IgbW9yZQ==", "SKEIN_WATCHES=" + file}
	args := []string{"--store", filepath.Join(dir, "store"), "--cursor", "0", "--force-cursor", "--allow-private-hosts", "--repair=false"}
	var d *daemon
	follow := func(format string, most time.Duration, want func(out string) bool) string {
		cmd := program(t, "watch", "--server", d.api, "--state", state, "--format", format, set)
		var printed, said lockedBuffer
		cmd.Stdout, cmd.Stderr = &printed, &said
		must(t, cmd.Start())
		eventually(t, most, "skein watch says what it watches, and prints changes", func() bool {
			return strings.HasPrefix(said.String(), "watching "+set+" (members now: ") && want(printed.String())
		})
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("skein watch: %v\n%s", err, said.String())
		}
		return printed.String()
	}
	for i := range kills {
		d = serveDaemon(t, env, args...)
		if i == 0 { // it begins with what there is
			follow("text", 10*time.Second, func(string) bool { _, err := os.Stat(state); return err == nil })
			args = append(args[:2], args[5:]...)
		}
		time.Sleep(700 * time.Millisecond)
		if end(); i%2 == 0 {
			time.Sleep(300 * time.Millisecond)
		}
		d.kill()
		_, end = listen(t, at, receive)
	}
	d = serveDaemon(t, env, args...)
	d.indexes(last)
	want := map[string]bool{}
	for did := range strings.FieldsSeq(run(t, 0, "", "query", "--server", d.api, set)) {
		want[did] = true
	}
	same := func(members map[string]bool) bool {
		n := 0
		for did, in := range members {
			if in && !want[did] {
				return false
			} else if in {
				n++
			}
		}
		return n == len(want)
	}
	eventually(t, 20*time.Second, "the receivers have the set", func() bool {
		b, _ := os.ReadFile(out)
		for line := range strings.Lines(string(b)) {
			var l struct{ ID string }
			_ = json.Unmarshal([]byte(line), &l)
			apply(filed, l.ID, line)
		}
		mu.Lock()
		defer mu.Unlock()
		return same(hooked) && same(filed)
	})
	var began struct{ Members map[string]bool }
	b, err := os.ReadFile(state)
	if err != nil || json.Unmarshal(b, &began) != nil {
		t.Fatalf("%s: %v", b, err)
	}
	follow("jsonl", 10*time.Second, func(out string) bool {
		now := map[string]bool{}
		for did := range began.Members {
			now[did] = true
		}
		for line := range strings.Lines(out) {
			var c app.Told
			if json.Unmarshal([]byte(line), &c) != nil || now[c.Member] == (c.Type == "entered") {
				t.Errorf("skein watch prints %s", line)
			}
			now[c.Member] = c.Type == "entered"
		}
		return same(now)
	})
	status, said := "", new(lockedBuffer)
	for _, reason := range []string{"", "", hostile, "", ""} {
		asker := app.Asker{Client: http.DefaultClient, Server: answers(t, 200, map[string]any{"total": 2, "reason": reason})}
		status = printWatched(t.Context(), &command.Environment{Stderr: said}, &asker, "x", status)
	}
	if isHarmless(t, "a reason", said.String()); strings.Count(said.String(), "watching x (members now: 2; ") != 3 {
		t.Errorf("what is watched is not said when it changes: %q", said.String())
	}
	run(t, 64, "another set", "watch", "--server", d.api, "--state", state, "likes("+known+")")
	run(t, 64, "expected text, jsonl or auto", "watch", "--format", "csv", set)
	run(t, 1, "did you mean follows", "watch", "--server", d.api, "folows("+known+")")
	run(t, 1, "no subscriptions", "watch", "--server", answers(t, 501, map[string]any{"error": "MethodNotImplemented", "message": "no subscriptions"}), set)
	d.stop()
	run(t, 0, "no problems found", "check", "--store", args[1])
	write(t, file, "a = "+set+" -> ")
	run(t, 64, "line 1", "serve", "--store", args[1], "--watches", file)
}
