package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query"
)

// The generated files in the repository are up to date.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	texts, err := generated("../../")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range texts {
		if got, err := os.ReadFile("../../" + path); err != nil || string(got) != want {
			t.Errorf("%s is out of date; run go run ./.ci/generate (%v)", path, err)
		}
	}
}

// The forms are the methods that a server accepts as forms.
func TestForms(t *testing.T) {
	store, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := query.New(store, query.Options{})
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/xrpc/"+l.ID, nil))
		if accepts := answer.Code != http.StatusMethodNotAllowed && answer.Code != http.StatusNotImplemented; accepts != slices.Contains(forms, l.ID) && l.Defs["main"].Input == nil {
			t.Errorf("a server accepts %s as a form: %v", l.ID, accepts)
		}
	}
}
