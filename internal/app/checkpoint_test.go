package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/app"
)

// A client of POST /checkpoint has the checkpoint for as long as its connection lasts, also if it asked for
// the connection to be closed after the answer.
func TestCheckpointLasts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	x, _ := open(t, dir, nil)
	_, admin, _ := serve(t, x, nil)
	for _, connection := range []string{"close", "keep-alive"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(admin, "http://"))
		must(t, err)
		_, err = conn.Write([]byte("POST /checkpoint HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: " + connection + "\r\nContent-Length: 2\r\n\r\n{}"))
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
		must(t, err)
		var c app.Checkpoint
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || resp.StatusCode != http.StatusOK || filepath.Dir(c.Folder) != filepath.Join(dir, "checkpoints") {
			t.Fatalf("Connection: %s: %s %+v %v", connection, resp.Status, c, err)
		}
		time.Sleep(100 * time.Millisecond)
		if _, err := os.Stat(filepath.Join(c.Folder, "CURRENT")); err != nil {
			if all, _ := filepath.Glob(filepath.Join(c.Folder, "MANIFEST-*")); len(all) == 0 {
				t.Errorf("Connection: %s: the checkpoint is gone while its client is there: %v", connection, err)
			}
		}
		must(t, conn.Close())
		eventually(t, "the checkpoint of a client that is gone is removed", func() bool { _, err := os.Stat(c.Folder); return os.IsNotExist(err) })
	}
}

// A start removes the checkpoints that a killed process left, also one that only reads: its reason may
// be the full disk that they fill.
func TestLeftCheckpointsAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, closeIt := open(t, dir, nil)
	closeIt()
	copied, err := app.CheckpointClosed(t.Context(), app.StoreOptions{Store: dir, Memory: 64 << 20})
	must(t, err)
	if _, err := app.OpenStore(t.Context(), app.StoreOptions{Store: dir, Memory: 64 << 20}); err == nil {
		t.Error("a start removes what is being backed up")
	}
	must(t, copied.Remove())
	for _, readOnly := range []bool{false, true} {
		left := filepath.Join(dir, "checkpoints", "20260101T000000.000000000Z", "000001.sst")
		must(t, os.MkdirAll(filepath.Dir(left), 0o755))
		must(t, os.WriteFile(left, []byte("x"), 0o600))
		x, err := app.OpenIndex(t.Context(), app.StoreOptions{Store: dir, ReadOnly: readOnly, Memory: 64 << 20})
		must(t, err)
		if _, err := os.Stat(left); !os.IsNotExist(err) {
			t.Errorf("read-only %v: %s stays: %v", readOnly, left, err)
		}
		must(t, x.Close(context.Background()))
	}
}
