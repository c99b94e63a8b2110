package format

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add the rows that the golden files lack; rows that are there stay")

// A form is one shape of bytes on disk: what the code writes today, and how the code
// says in words what it reads from such bytes.
type form struct {
	name  string
	bytes []byte
	read  func(v []byte) (string, error)
}

// checkGolden compares forms with the rows of a golden file. A row is the form's
// name, what the bytes hold in words, and the bytes in hex, with a tab between. The
// code must write the bytes of the row, and must read the words of the row from them.
func checkGolden(t *testing.T, file string, forms []form) {
	t.Helper()
	path := filepath.Join("testdata", file)
	text, err := os.ReadFile(path)
	if isNew := *update && errors.Is(err, os.ErrNotExist); err != nil && !isNew {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(row) != 3 || rows[row[0]] != nil {
			t.Fatalf("%s: the row %q is malformed, or there twice", path, line)
		}
		rows[row[0]] = row
	}
	seen := map[string]bool{}
	for _, f := range forms {
		if seen[f.name] {
			t.Errorf("two forms are called %q", f.name)
		}
		seen[f.name] = true
		row := rows[f.name]
		if row == nil {
			words, err := f.read(f.bytes)
			if !*update || err != nil {
				t.Errorf("%s has no row for %q, which is %x: %v", path, f.name, f.bytes, err)
				continue
			}
			text = fmt.Appendf(text, "%s\t%s\t%s\n", f.name, words, hexRuns(f.bytes))
			continue
		}
		stored, err := parseHexRuns(row[2])
		if err != nil {
			t.Fatalf("%s: %q: %v", path, f.name, err)
		}
		if !bytes.Equal(f.bytes, stored) {
			t.Errorf("%s is written as\n%s, and stores hold\n%s", f.name, hexRuns(f.bytes), row[2])
		}
		if words, err := f.read(stored); err != nil || words != row[1] {
			t.Errorf("%s is read as\n%s, %v, and was\n%s", f.name, words, err, row[1])
		}
	}
	for name := range rows {
		if !seen[name] {
			t.Errorf("%s has a row %q, and no form reads it any more", path, name)
		}
	}
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// hexRuns is hex, in which a run of eight equal bytes or more is one byte, a star
// and a number. No bytes are a dash.
func hexRuns(v []byte) string {
	if len(v) == 0 {
		return "-"
	}
	var parts []string
	plain := 0 // where the bytes begin that are not in parts yet
	for i := 0; i < len(v); {
		n := 1
		for i+n < len(v) && v[i+n] == v[i] {
			n++
		}
		if n >= 8 {
			if plain < i {
				parts = append(parts, hex.EncodeToString(v[plain:i]))
			}
			parts = append(parts, fmt.Sprintf("%02x*%d", v[i], n))
			plain = i + n
		}
		i += n
	}
	if plain < len(v) {
		parts = append(parts, hex.EncodeToString(v[plain:]))
	}
	return strings.Join(parts, " ")
}

func parseHexRuns(s string) (v []byte, err error) {
	if s == "-" {
		return nil, nil
	}
	for part := range strings.FieldsSeq(s) {
		part, times, isRun := strings.Cut(part, "*")
		b, err := hex.DecodeString(part)
		n := 1
		if isRun && err == nil {
			n, err = strconv.Atoi(times)
		}
		if err != nil {
			return nil, err
		}
		v = append(v, bytes.Repeat(b, n)...)
	}
	return v, nil
}

// ranges says which numbers are in a list: "[3 5-9]".
func ranges[N uint16 | uint64](list []N) string {
	var parts []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i]+N(n) {
			n++
		}
		if n > 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[i+n-1]))
			i += n
			continue
		}
		parts = append(parts, fmt.Sprint(list[i]))
		i++
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// The notation of the golden files says what it was made from.
func TestHexRuns(t *testing.T) {
	for want, v := range map[string][]byte{
		"-":                nil,
		"01":               {1},
		"00*8":             make([]byte, 8),
		"00000000000000":   make([]byte, 7),
		"0102 00*9 03":     slices.Concat([]byte{1, 2}, make([]byte, 9), []byte{3}),
		"ff*12 00*8":       slices.Concat(bytes.Repeat([]byte{0xff}, 12), make([]byte, 8)),
		"0a*8 0b0b0c 0d*8": slices.Concat(bytes.Repeat([]byte{10}, 8), []byte{11, 11, 12}, bytes.Repeat([]byte{13}, 8)),
	} {
		got := hexRuns(v)
		back, err := parseHexRuns(got)
		if got != want || !bytes.Equal(back, v) || err != nil {
			t.Errorf("%x is %q, which is %x, %v; want %q", v, got, back, err, want)
		}
	}
	if got := ranges([]uint64{1, 3, 4, 7, 8, 9, 1 << 63}); got != "[1 3 4 7-9 9223372036854775808]" {
		t.Error(got)
	}
}
