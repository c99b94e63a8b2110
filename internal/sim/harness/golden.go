package harness

// Golden files: the code must still write the bytes in testdata, and read them as described there.

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add missing rows to golden files, whose existing rows stay")

// A Form is one shape of bytes on disk: the bytes that the code writes today, and a
// description of what the code reads from such bytes.
type Form struct {
	Name  string
	Bytes []byte
	Read  func(v []byte) (string, error)
}

// NewForm returns a form: its name, the bytes that the code writes, and a function that
// describes them.
func NewForm(name string, written []byte, read func(v []byte) (string, error)) Form {
	return Form{name, written, read}
}

// CheckGolden compares forms with the rows of a golden file. A row is the form's name, the
// description, and the bytes in hex, separated by tabs. The code must write the bytes of
// the row, and read them as in its description.
func CheckGolden(t *testing.T, file string, forms []Form) {
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
			t.Fatalf("%s: the row %q is malformed or duplicate", path, line)
		}
		rows[row[0]] = row
	}
	seen := map[string]bool{}
	for _, f := range forms {
		if seen[f.Name] {
			t.Errorf("two forms have the name %q", f.Name)
		}
		seen[f.Name] = true
		row := rows[f.Name]
		if row == nil {
			words, err := f.Read(f.Bytes)
			if !*update || err != nil {
				t.Errorf("%s has no row for %q with the bytes %x: %v", path, f.Name, f.Bytes, err)
				continue
			}
			text = fmt.Appendf(text, "%s\t%s\t%s\n", f.Name, words, HexRuns(f.Bytes))
			continue
		}
		stored, err := ParseHexRuns(row[2])
		if err != nil {
			t.Fatalf("%s: %q: %v", path, f.Name, err)
		}
		if !bytes.Equal(f.Bytes, stored) {
			t.Errorf("%s is written as\n%s, and existing stores have\n%s", f.Name, HexRuns(f.Bytes), row[2])
		}
		if words, err := f.Read(stored); err != nil || words != row[1] {
			t.Errorf("%s is read as\n%s, %v, want\n%s", f.Name, words, err, row[1])
		}
	}
	for name := range rows {
		if !seen[name] {
			t.Errorf("%s has a row %q without a form", path, name)
		}
	}
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// HexRuns encodes bytes as hex, with a run of eight or more equal bytes as one byte, a
// star and a number, and no bytes as a dash.
func HexRuns(v []byte) string {
	if len(v) == 0 {
		return "-"
	}
	var parts []string
	plain := 0 // start of the bytes that are not in parts yet
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

// ParseHexRuns parses the result of HexRuns.
func ParseHexRuns(s string) (v []byte, err error) {
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
