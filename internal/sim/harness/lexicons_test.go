package harness_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// @atproto/lexicon accepts our published lexicons, and the reference PDS stores them as
// valid records of com.atproto.lexicon.schema.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestLexicons -peers DIR -v
func TestLexicons(t *testing.T) {
	kit := peers(t)
	n := newNetwork(t, kit, 9)
	author, dir := n.accounts[0].Account, filepath.Join(n.dir, "records")
	out, err := exec.CommandContext(t.Context(), "go", "run", "../../../.ci/lexicons", "--did", author.DID, dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `_lexicon.graph.skein.blue. 3600 IN TXT "did=`+author.DID+`"`) {
		t.Fatalf("%s: %v", out, err)
	}
	const collection = "com.atproto.lexicon.schema"
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var want []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		if err := n.client.PutRecord(t.Context(), author, collection, id, b); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		want = append(want, id)
	}
	records, err := n.client.ListRecords(t.Context(), author.DID, collection)
	must(t, err)
	var stored []string
	for _, r := range records {
		stored = append(stored, r.Rkey)
	}
	slices.Sort(stored)
	var read []string
	b, err := kit.Lexicons(t.Context(), n.log, dir)
	if err == nil {
		err = json.Unmarshal(b, &read)
	}
	slices.Sort(read)
	if err != nil || !slices.Equal(stored, want) || !slices.Equal(read, want) {
		t.Errorf("the PDS has %q, @atproto/lexicon read %q, %v; want %q", stored, read, err, want)
	}
}
