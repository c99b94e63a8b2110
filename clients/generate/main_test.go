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
	"skein.blue/internal/kv/memkv"
	"skein.blue/query"
)

// The files in the repository are those that the lexicons make.
func TestMade(t *testing.T) {
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range made(all) {
		if got, err := os.ReadFile("../" + path); err != nil || string(got) != want {
			t.Errorf("clients/%s is not what the lexicons make: run go run ./clients/generate (%v)", path, err)
		}
	}
}

// The methods that the clients send as forms are those that a server takes as forms.
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
	var taken []string
	for path, methods := range description.Paths {
		if methods["post"] != nil {
			taken = append(taken, strings.TrimPrefix(path, "/xrpc/"))
		}
	}
	if len(taken) == 0 {
		t.Skip("this server takes no forms")
	}
	slices.Sort(taken)
	if !slices.Equal(taken, forms) {
		t.Errorf("a server takes %q as forms, the clients send %q", taken, forms)
	}
}
