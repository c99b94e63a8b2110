package fdbkv_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/kv/fdbkv"
)

// An error of Parse contains the reason and the URL.
func TestParseErrors(t *testing.T) {
	t.Setenv("FDB_CLUSTER_FILE", "")
	for store, why := range map[string]string{
		"/a/b.cluster":               "three slashes",
		"pebble:///a":                "three slashes",
		"":                           "three slashes",
		"fdb:a/b":                    "three slashes",
		"fdb:/a?prefix=%00":          "letters",
		"fdb://host/a.cluster":       "three slashes",
		"fdb:///a?prefix=":           "1 to 64",
		"fdb:///a?prefix=a b":        "1 to 64",
		"fdb:///a?prefix=ä":          "1 to 64",
		"fdb:///a?prefix=a%0a":       "1 to 64",
		"fdb:///a?prefix=a&prefix=a": "parameter prefix",
		"fdb:///a?prefix=a&x=1":      "parameter x",
		"fdb:///a?Prefix=a":          "parameter Prefix",
		"fdb:///%":                   "not a URL",
		"fdb:///a?prefix=" + strings.Repeat("a", 65): "1 to 64",
	} {
		if got, err := fdbkv.Parse(store); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), fmt.Sprintf("%q", store)) {
			t.Errorf("%q is parsed as %+v, %v", store, got, err)
		}
	}
	long := strings.Repeat("a", 64)
	for store, want := range map[string]fdbkv.Location{
		"fdb:":                    {ClusterFile: fdbkv.DefaultClusterFile, Prefix: fdbkv.DefaultPrefix},
		"fdb:///":                 {ClusterFile: fdbkv.DefaultClusterFile, Prefix: fdbkv.DefaultPrefix},
		"FDB:///a":                {ClusterFile: "/a", Prefix: fdbkv.DefaultPrefix},
		"fdb:/a":                  {ClusterFile: "/a", Prefix: fdbkv.DefaultPrefix},
		"fdb:///a%20b?prefix=%61": {ClusterFile: "/a b", Prefix: "a"},
		"fdb:///a?prefix=" + long: {ClusterFile: "/a", Prefix: long},
	} {
		if got, err := fdbkv.Parse(store); err != nil || got != want {
			t.Errorf("%q is parsed as %+v, %v", store, got, err)
		}
	}
}

// The commands of FoundationDB's tools survive a shell, whatever the paths contain, and name the newest backup.
func TestToolCommands(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "it's [here] $HOME")
	l := fdbkv.Location{ClusterFile: "/a b/fdb'.cluster", Prefix: "a.b_c-1"}
	words := func(line string) string {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s|' `+line).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	const keys = `\x02a.b_c-1\x00 \x02a.b_c-1\x02`
	if got, want := words(l.BackupCommands(folder)[1]), "fdbbackup|start|-C|"+l.ClusterFile+"|-t|a.b_c-1|-k|"+keys+"|-d|file://"+folder+"|-w|"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, newest := range []string{"backup-…", "backup-2026-01-01", "backup-2026-02-01"} {
		if newest != "backup-…" {
			if err := os.MkdirAll(filepath.Join(folder, newest), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := words(l.RestoreCommands(folder)[1]), "fdbrestore|start|--dest-cluster-file|"+l.ClusterFile+"|-t|a.b_c-1|-k|"+keys+"|-r|file://"+filepath.Join(folder, newest)+"|-w|"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, want := words(l.ClearCommand()), "fdbcli|-C|"+l.ClusterFile+"|--exec|writemode on; clearrange "+keys+"|"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
