package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/harness"
)

func rowAgain(v []byte) ([]byte, error) {
	r, err := ParseRow(goldenSubject, v)
	members, err1 := r.AppendMembers(nil)
	if err := errors.Join(err, err1); err != nil {
		return nil, err
	}
	dates, err := r.AppendDates(nil, members)
	removed, err1 := r.AppendRemoved(nil)
	return AppendRow(nil, goldenSubject, r.Generation, removed, members, dates), errors.Join(err, err1)
}

func rowGroupAgain(v []byte) ([]byte, error) {
	var g RowGroup
	err := EachRow(1008, v, func(subject dict.ID, row []byte) error { g.Add(subject, row); return nil })
	return g.Value, err
}

func chunkAgain(c ChunkCoder) func([]byte) ([]byte, error) {
	return func(v []byte) ([]byte, error) {
		records, reach, err := c.Read(nil, v)
		return c.Append(nil, reach, records), err
	}
}

func groupAgain(v []byte) (again []byte, err error) {
	err = alone.EachState(alone.AccountKey(nil, 0), v, func(id dict.ID, s RepoState) error {
		again = alone.AppendAccount(again, id, &s)
		return nil
	})
	return again, err
}

func stateAgain(v []byte) ([]byte, error) {
	s, err := DecodeRepoState(v)
	return s.Append(nil), err
}

func cursorAgain(v []byte) ([]byte, error) {
	c, err := DecodeCursor(v)
	return c.Value(), err
}

func headerAgain(v []byte) ([]byte, error) {
	h, err := DecodeHeader(v)
	return h.Append(nil), err
}

func countsAgain(v []byte) ([]byte, error) {
	c, err := DecodeCounts(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

func versionAgain(v []byte) ([]byte, error) {
	n, err := DecodeVersion(v)
	return binary.BigEndian.AppendUint64(nil, n), err
}

// codecs lists the codec of every decoder, with its golden forms.
func codecs() []harness.Codec {
	valid := func(forms []harness.Form, has ...string) (out [][]byte) {
		for _, f := range forms {
			for _, s := range has {
				if strings.Contains(f.Name, s) {
					out = append(out, f.Bytes)
				}
			}
		}
		return out
	}
	var states [][]byte
	for _, s := range goldenStates {
		states = append(states, s.Append(nil))
	}
	return []harness.Codec{
		{Name: "row", Again: rowAgain, Valid: valid(goldenRows(), "row"), Cut: true},
		{Name: "row group", Again: rowGroupAgain, Valid: valid(goldenGroups(), "group", "operand"), Cut: true},
		{Name: "chunk", Again: chunkAgain(CoderOf(1, shortID)), Valid: valid(goldenChunks(), "TID", "raw key"), Cut: true},
		{Name: "chunk of several subjects", Again: chunkAgain(CoderOf(kinds.FirstMany, shortID)), Valid: valid(goldenChunks(), "pair"), Cut: true},
		{Name: "state", Again: stateAgain, Valid: states, Cut: true},
		{Name: "accounts", Again: groupAgain, Valid: valid(goldenAccounts(), "of a group", "group of"), Cut: true},
		{Name: "cursor", Again: cursorAgain, Valid: valid(goldenRest(), "cursor"), Cut: true},
		{Name: "header", Again: headerAgain, Valid: valid(goldenRest(), "header of", "header without"), Exact: true, Cut: true},
		{Name: "counts", Again: countsAgain, Valid: valid(goldenRest(), "counts"), Cut: true},
		{Name: "version of the hidden set", Again: versionAgain, Valid: [][]byte{make([]byte, 8), bytes.Repeat([]byte{0xff}, 8)}, Exact: true, Cut: true},
		{Name: "chunk key", Again: chunkKeyAgain, Valid: valid(goldenKeys(), "head,", "leaf up to"), Exact: true, Cut: true},
		{Name: "set key, alone", Again: setKeyAgain(alone), Valid: valid(goldenKeys(), "alone: row", "alone: set leaf"), Exact: true, Cut: true},
		{Name: "set key, shared", Again: setKeyAgain(shared), Valid: valid(goldenKeys(), "shared: row", "shared: set leaf"), Exact: true, Cut: true},
		{Name: "row group key", Again: rowGroupKeyAgain, Valid: valid(goldenKeys(), "row group"), Exact: true, Cut: true},
		{Name: "actor key", Again: actorKeyAgain, Valid: valid(goldenKeys(), "account", "erase"), Exact: true, Cut: true},
	}
}

// places returns the offsets at which a value is truncated or changed: all of a short value,
// and the ends and some others of a long one.
func places(n int) (at []int) {
	for i := 0; i < n; {
		at = append(at, i)
		if i < 48 || i > n-48 {
			i++
		} else {
			i = min(i+251, n-47)
		}
	}
	return at
}

func TestCutValues(t *testing.T) {
	for _, c := range codecs() {
		if len(c.Valid) == 0 {
			t.Errorf("%s: no values", c.Name)
		}
		for _, v := range c.Valid {
			if again, ok := c.Check(t, v); !ok || c.Name != "counts" && !bytes.Equal(again, v) {
				t.Errorf("%s: %x is read, %v, and written again as %x", c.Name, v, ok, again)
			}
			for _, n := range places(len(v)) {
				if n == 0 && strings.Contains(c.Name, " key") {
					continue // a key is never empty
				}
				again, ok := c.Check(t, v[:n])
				// The head of a row without removed members is a valid row, too.
				bare := c.Name == "row" && bytes.Equal(v[:n], []byte{1, 0})
				if c.Cut && !bare && ok && !bytes.Equal(again, v[:n]) {
					t.Errorf("%s: %x, truncated to %x, is read as %x", c.Name, v, v[:n], again)
				}
			}
		}
	}
}
