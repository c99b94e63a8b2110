package fdbkv_test

import (
	"errors"
	"testing"

	"skein.blue/internal/kv/fdbkv"
)

func TestParse(t *testing.T) {
	t.Setenv("FDB_CLUSTER_FILE", "/from/env")
	for store, want := range map[string]fdbkv.Location{
		"fdb:///a/b.cluster":                {ClusterFile: "/a/b.cluster", Prefix: "skein"},
		"fdb:///a/b.cluster?prefix=x.1-2_Y": {ClusterFile: "/a/b.cluster", Prefix: "x.1-2_Y"},
		"fdb://":                            {ClusterFile: "/from/env", Prefix: "skein"},
		"fdb:///?prefix=a":                  {ClusterFile: "/from/env", Prefix: "a"},
	} {
		if got, err := fdbkv.Parse(store); err != nil || got != want {
			t.Errorf("%s: %+v, %v", store, got, err)
		}
	}
	for _, bad := range []string{"fdb:a", "fdb://a/b", "fdb:///a?prefix=", "fdb:///a?prefix=a/b", "fdb:///a?prefix=a&prefix=b", "fdb:///a?x=y", "fdb:///a%zz"} {
		if got, err := fdbkv.Parse(bad); err == nil {
			t.Errorf("%s is parsed as %+v", bad, got)
		}
	}
	if _, err := fdbkv.Open(t.Context(), fdbkv.Options{}); !fdbkv.Built && !errors.Is(err, fdbkv.ErrNotBuilt) {
		t.Errorf("without the tag: %v", err)
	}
}
