package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query"
)

// The generated files in the repository are up to date.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range generated(all) {
		if got, err := os.ReadFile("../../clients/" + path); err != nil || string(got) != want {
			t.Errorf("clients/%s is out of date; run go run ./.ci/generate (%v)", path, err)
		}
	}
}

// The clients send exactly those methods as forms that a server accepts as forms.
func TestForms(t *testing.T) {
	store, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := query.New(store, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var description struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(answer.Body.Bytes(), &description); err != nil {
		t.Fatal(err)
	}
	var accepted []string
	for path, methods := range description.Paths {
		if methods["post"] != nil {
			accepted = append(accepted, strings.TrimPrefix(path, "/xrpc/"))
		}
	}
	if len(accepted) == 0 {
		t.Skip("this server accepts no forms")
	}
	slices.Sort(accepted)
	if !slices.Equal(accepted, forms) {
		t.Errorf("a server accepts %q as forms, the clients send %q", accepted, forms)
	}
}
