package main

import (
	"os"
	"testing"
)

// What is made from the lexicons is what lies in the repository.
func TestMade(t *testing.T) {
	all, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files(all) {
		if got, err := os.ReadFile("../" + path); err != nil || string(got) != want {
			t.Errorf("clients/%s is not what is made of the lexicons: run go run ./clients/generate (%v)", path, err)
		}
	}
}
