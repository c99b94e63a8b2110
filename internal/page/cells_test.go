package page

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
)

// A spreadsheet computes no cell of the page's CSV, and a line break in a text begins no line, there
// or in what the page copies.
func TestCells(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed")
	}
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	texts := []string{"=1+1", "+1", "-1", "@sum(a1)", "\t=1", "\r=1", "=a,\"b\"", "good\n" + did, "evil\r", "a,b", `"`, "a=b", " =1", did}
	want := map[string][]string{
		"safe": {"'=1+1", "'+1", "'-1", "'@sum(a1)", "'\t=1", "\"'\r=1\"", `"'=a,""b"""`, "\"good\n" + did + `"`, "\"evil\r\"", `"a,b"`, `""""`, "a=b", " =1", did},
		"cell": {"=1+1", "+1", "-1", "@sum(a1)", "\t=1", "\"\r=1\"", `"=a,""b"""`, "\"good\n" + did + `"`, "\"evil\r\"", `"a,b"`, `""""`, "a=b", " =1", did},
	}
	given, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	source, err := static.ReadFile("static/actions.js")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node, "-e", string(source)+"\nconst texts = "+string(given)+";\nprocess.stdout.write(JSON.stringify({safe: texts.map(safe), cell: texts.map(cell)}));").Output()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string][]string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for name, cells := range want {
		if !slices.Equal(got[name], cells) {
			t.Errorf("%s: %q, want %q", name, got[name], cells)
		}
	}
}
