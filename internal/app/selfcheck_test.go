package app_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
)

// A daemon checks its store while it runs: a sound one has no problems, and a row that lacks its record is
// found.
func TestCheckWhileRunning(t *testing.T) {
	dir := t.TempDir()
	var log lockedBuffer
	x, err := app.OpenIndex(t.Context(), app.StoreOptions{Store: dir, Create: true, Memory: 64 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	zero := int64(0)
	await := func(what string) {
		t.Helper()
		for range 1000 {
			if strings.Contains(log.String(), what) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("the log has no %q: %s", what, log.String())
	}
	_, _, stop := serveWith(t, x, app.ServeOptions{Consume: &consumer.Options{Relay: "ws://127.0.0.1:1", Cursor: &zero}, CheckEvery: 50 * time.Millisecond})
	await("store checked: no problems")
	if strings.Contains(log.String(), "inconsistent") {
		t.Error(log.String())
	}
	err = x.KV.Update(t.Context(), func(tx kv.Txn) error {
		tx.Set(format.AppendRowKey(nil, 1, 77<<16), format.AppendRow(nil, 77<<16, 0, nil, []uint64{5}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	await("the store has problems")
	if got := log.String(); !strings.Contains(got, "the store is inconsistent") {
		t.Error(got)
	}
	families, err := x.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0.0
	for _, f := range families {
		if f.GetName() == "skein_check_problems" {
			found = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if found == 0 {
		t.Error("skein_check_problems is 0")
	}
	stop()
}
