//go:build fdb

package fdbkv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"

	"skein.blue/internal/kv"
)

// joined folds values into one string, separated by commas. It fails on "bad".
type joined struct{}

var errJoin = errors.New("bad operand")

func (joined) Name() string { return "joined" }

func (joined) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	for i, v := range values {
		if string(v) == "bad" {
			return nil, errJoin
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return dst, nil
}

func newStore(prefix string) *Store {
	s := &Store{o: Options{Merger: joined{}, Location: Location{ClusterFile: "/the.cluster", Prefix: prefix}}, prefix: tuple.Tuple{prefix}.Pack()}
	s.end = kv.PrefixEnd(s.prefix)
	return s
}

// A value that was set is returned unchanged. Operands, with or without a value before
// them, are folded.
func TestValueOfFrames(t *testing.T) {
	s := newStore("x")
	frames := func(parts ...string) (b []byte) { // operands begin with +
		for _, p := range parts {
			v, operand := strings.CutPrefix(p, "+")
			b = appendFrame(b, []byte(v), operand)
		}
		return b
	}
	for _, c := range []struct {
		frames []byte
		want   string
	}{
		{frames(""), ""},
		{frames("a"), "a"},
		{frames("bad"), "bad"}, // a value that was set is not folded
		{frames("+a"), "a"},
		{frames("a", "+b"), "a,b"},
		{frames("+a", "+b", "+c"), "a,b,c"},
		{frames("", "+"), ","},
	} {
		if got, err := s.value([]byte("k"), c.frames); err != nil || string(got) != c.want {
			t.Errorf("%q folds to %q, want %q: %v", c.frames, got, c.want, err)
		}
	}
	for _, bad := range [][]byte{frames("a", "+bad"), frames("+bad"), append(frames("a"), 0x80), append(frames("a", "+b"), 9), {}} {
		if got, err := s.value([]byte("k"), bad); err == nil {
			t.Errorf("%q folds to %q", bad, got)
		}
	}
	if _, err := s.value([]byte("k"), frames("+bad")); !errors.Is(err, errJoin) {
		t.Errorf("error of the Merger: %v", err)
	}
}

// A folded value, and the operands that may be appended before the next fold, fit into a value
// of FoundationDB.
func TestFoldBounds(t *testing.T) {
	if len(appendFrame(nil, make([]byte, maxFolded), false))+700*len(appendFrame(nil, make([]byte, maxAppend), true)) > 100_000 {
		t.Errorf("%d bytes folded and 700 operands of %d do not fit", maxFolded, maxAppend)
	}
}

// A malformed cluster file is an error; the client library would silently wait.
func TestCheckClusterFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fdb.cluster")
	for content, why := range map[string]string{
		"a:b@127.0.0.1:4500\n":                      "",
		"a_1:B2@127.0.0.1:4500,10.0.0.1:4500":       "",
		"# of us\n\n  a:b@[::1]:4500:tls  \n# more": "",
		"":                          "is empty",
		"\n\n":                      "is empty",
		"# a:b@127.0.0.1:4500\n":    "is empty",
		"a@127.0.0.1:4500":          "want description",
		"a-b:c@127.0.0.1:4500":      "want description",
		"a:b@127.0.0.1:4500 c":      "want description",
		"a:b@":                      "want description",
		"hello\na:b@127.0.0.1:4500": "hello",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkClusterFile(path)
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if err := checkClusterFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
