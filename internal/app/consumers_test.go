package app_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// FutureCursor never makes the cursor jump silently. The remedy in the message works although the
// relay has restarted its sequence.
func TestFutureCursor(t *testing.T) {
	tr := readTruth(t)
	all, err := synth.ReadFrames(plainPDS)
	must(t, err)
	dir := t.TempDir()
	r := relay.NewRecorded(all)
	srv := httptest.NewServer(r)
	defer srv.Close()
	x, closeIt := open(t, dir, nil)
	base, _, stop := serve(t, x, &consumer.Options{Relay: srv.URL, Cursor: new(int64), MinBackoff: time.Millisecond})
	waitForCursor(t, base, tr.FinalSeq)
	stop()
	closeIt()

	r = relay.NewRecorded(all[:300]) // the same host with a restarted sequence
	srv.Config.Handler = r
	log := &lockedBuffer{}
	x, closeIt = open(t, dir, slog.New(slog.NewTextHandler(log, nil)))
	base, _, stop = serve(t, x, &consumer.Options{Relay: srv.URL, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond})
	eventually(t, "the consumer is blocked", func() bool { return getStats(t, base).State == "blocked" })
	// The new numbering passes our cursor. Nothing is applied anyway, and the relay is not even
	// contacted.
	for i := range int64(10) {
		r.Append(oracle.Frame(&oracle.Event{
			Type: oracle.CommitEvent, Seq: tr.FinalSeq + 1 + i, DID: "did:plc:aaaaaaaaaaaaaaaaaaaaaaa" + string('a'+rune(i)), Rev: oracle.TID(1 << 60),
			Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"}},
		}))
	}
	time.Sleep(100 * time.Millisecond)
	if s := getStats(t, base); s.Cursor != tr.FinalSeq || s.State != "blocked" {
		t.Errorf("the cursor jumped to %d, the state is %s", s.Cursor, s.State)
	}
	if n, _ := r.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	stop()
	closeIt()
	for _, want := range []string{"--force-cursor", "cursor=2116", strings.TrimPrefix(srv.URL, "http://")} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log)
	}

	r = relay.NewRecorded(all[:300])
	srv.Config.Handler = r
	x, closeIt = open(t, dir, nil)
	base, admin, stop := serve(t, x, &consumer.Options{Relay: srv.URL, Cursor: new(int64), ForceCursor: true, MinBackoff: time.Millisecond})
	eventually(t, "the stream is read again", func() bool { c := getStats(t, base).Cursor; return c >= 300 && c < tr.FinalSeq })
	r.Append(all[300:]...)
	waitForCursor(t, base, tr.FinalSeq)
	if s := getStats(t, base); s.Desynchronized != 0 || s.Partial != 0 {
		t.Errorf("after the decision: %+v", s)
	}
	if gaps := body(t, admin+"/gaps"); strings.Count(gaps, "\n") != 1 || !strings.Contains(gaps, `"reason":"future_cursor"`) || !strings.Contains(gaps, `"suspect":true`) || !strings.Contains(gaps, fmt.Sprintf(`"after":%d`, tr.FinalSeq)) {
		t.Errorf("the decision is not recorded: %s", gaps)
	}
	stop()
	closeIt()
	checkStore(t, dir)
}
