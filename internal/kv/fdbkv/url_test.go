package fdbkv_test

import (
	"fmt"
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
