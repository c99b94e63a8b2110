package read_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// TestHeader checks which headers are refused, and the messages, which an operator reads.
func TestHeader(t *testing.T) {
	h := format.Header{Version: format.Newest, Settings: dict.SharedSettings, Kinds: []kinds.Kind{1, 2, 4}}
	good := h.Append(nil)
	older, newer := slices.Clone(good), slices.Clone(good)
	older[0], newer[0] = byte(format.Newest-1), byte(format.Newest+1)
	cut := good[:len(good)-1]
	twice := slices.Clone(good)
	twice[len(twice)-1] = 2
	downwards := slices.Clone(good)
	downwards[len(downwards)-1] = 1
	unusable := slices.Clone(good)
	unusable[1] = 40
	for name, test := range map[string]struct {
		value   []byte // nil for a missing header
		found   bool
		refused bool   // with ErrFormat
		says    string // "" if the header is good
	}{
		"good":                {good, true, false, ""},
		"none":                {nil, false, true, "there is no graph in the store"},
		"an older format":     {older, true, true, fmt.Sprintf("has format %d, and this program reads %d: index again", format.Newest-1, format.Newest)},
		"a version alone":     {[]byte{1}, true, true, "has format 1, and this program reads"},
		"a newer format":      {newer, true, true, fmt.Sprintf("has format %d, and this program reads", format.Newest+1)},
		"version 255":         {[]byte{0xff}, true, true, "has format 255"},
		"empty":               {[]byte{}, true, false, "header is malformed"},
		"cut":                 {cut, true, false, "header is malformed"},
		"too long":            {append(slices.Clone(good), 9), true, false, "header is malformed"},
		"a kind twice":        {twice, true, false, "header is malformed"},
		"kinds out of order":  {downwards, true, false, "header is malformed"},
		"impossible settings": {unusable, true, false, "40 shard bits"},
	} {
		rows := map[string][]byte{}
		if test.value != nil {
			rows[string(format.HeaderKey)] = test.value
		}
		check := func(which string, got format.Header, err error, says string) {
			if says == "" {
				if err != nil || got.Version != h.Version || got.Settings != h.Settings || !slices.Equal(got.Kinds, h.Kinds) {
					t.Errorf("%s: %s is %+v, want %+v: %v", name, which, got, h, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, read.ErrFormat) != test.refused {
				t.Errorf("%s: %s says %v, want %q", name, which, err, says)
			}
		}
		raw(t, rows, func(r kv.Reader) {
			got, err := read.Header(r)
			check("Header", got, err, test.says)
			got, found, err := read.FindHeader(r)
			if found != test.found {
				t.Errorf("%s: found=%v", name, found)
			}
			if test.found { // a missing header is not an error of FindHeader
				check("FindHeader", got, err, test.says)
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		// An unfinished import is an error whatever the header; a bad header is reported first.
		rows[string(format.KeyImport)] = nil
		raw(t, rows, func(r kv.Reader) {
			says := test.says
			if says == "" {
				says = "run skein import again"
			}
			if _, err := read.Header(r); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s, importing: %v", name, err)
			}
			if err := read.NotImporting(r); err == nil || !strings.Contains(err.Error(), "did not finish") {
				t.Errorf("%s, importing: %v", name, err)
			}
		})
	}
}

// failing is a Reader whose reads all fail.
type failing struct{ err error }

func (f failing) Get([]byte) ([]byte, bool, error) { return nil, false, f.err }

func (f failing) MultiGet([][]byte, func(int, []byte, bool) error) error { return f.err }

func (f failing) Scan([]byte, []byte, bool, func(_, _ []byte) (bool, error)) error { return f.err }

// TestFailingReads: every function returns the engine's error, and does not take a failed read
// for a missing row.
func TestFailingReads(t *testing.T) {
	gone := errors.New("gone")
	r := failing{gone}
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
		l := format.Layout{Settings: settings}
		for name, do := range map[string]func() error{
			"Header":       func() error { _, err := read.Header(r); return err },
			"FindHeader":   func() error { _, _, err := read.FindHeader(r); return err },
			"NotImporting": func() error { return read.NotImporting(r) },
			"FindAccount":  func() error { _, _, err := read.FindAccount(r, l, 1); return err },
			"Counts":       func() error { _, err := read.Counts(r); return err },
			"Hidden":       func() error { _, err := read.Hidden(r); return err },
			"HiddenSince": func() error {
				_, err := read.HiddenSince(r, &read.HiddenVersions{}, &read.HiddenVersions{Parts: [64]uint64{1}}, nil)
				return err
			},
			"Cursors":     func() error { _, err := read.Cursors(r); return err },
			"WriteState":  func() error { _, err := read.WriteState(r); return err },
			"DeadLetters": func() error { _, err := read.DeadLetters(r); return err },
			"Gaps":        func() error { _, err := read.Gaps(r); return err },
			"Date":        func() error { _, _, _, err := read.Date(r, l, 1, 2, 3); return err },
			"Bitmap":      func() error { _, err := read.Bitmap(r, l, 1, 2); return err },
			"Leaves":      func() error { _, err := (&read.Set{Key: format.AppendRowKey(nil, 1, 2)}).Leaves(r); return err },
			"Records":     func() error { return read.Records(r, 1, 2, func(*format.Record) bool { return true }) },
		} {
			if err := do(); !errors.Is(err, gone) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
