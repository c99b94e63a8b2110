package check

import (
	"fmt"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestKeysOfOneByte: a key of one byte is malformed in every keyspace, and does not end the
// check. In the keyspaces that are checked it is reported.
func TestKeysOfOneByte(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		all := h.bench(t)
		for first := range 256 {
			all.rows[string([]byte{byte(first)})] = nil
		}
		all.problems()
		for key := range strings.SplitSeq("aceigdlprsv", "") {
			b := h.bench(t)
			b.rows[key] = nil
			if found := b.problems(); len(found) != 1 || !strings.Contains(found[0], fmt.Sprintf(" %x", key)) {
				t.Errorf("key %x: %q", key, found)
			}
		}
	})
}

// TestMalformedGroupOfStrings: a malformed group of strings is reported, and so are those who need a string of it. The rest
// is checked.
func TestMalformedGroupOfStrings(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		for of, says := range map[string]string{alice: "actor %d has no string", page: "subject %d has no string", long: "", plc: "account %d has no string"} {
			b := h.bench(t)
			id, ns := b.id(of), dict.DID
			if of == page {
				ns = dict.URI
			}
			key := string(dict.AppendGroupKey(nil, ns, id))
			b.rows[key] = []byte{2 << dict.GroupBits}
			b.rows["zz"] = nil
			found := strings.Join(b.problems(), "\n")
			wants := []string{fmt.Sprintf("dictionary row %x: %v", key, dict.ErrGroup), "key 7a7a is in an unknown keyspace"}
			if says != "" {
				wants = append(wants, fmt.Sprintf(says, id))
			}
			for _, want := range wants {
				if !strings.Contains(found, want) {
					t.Errorf("%s: the reports are %q, want %q", of, found, want)
				}
			}
		}
	})
}

// TestKeysOfTheOtherLayout: nothing reads keys of the other layout, so they are reported.
func TestKeysOfTheOtherLayout(t *testing.T) {
	says := func(key []byte) string { return fmt.Sprintf("set key %x does not fit this store's layout", key) }
	row := func(b *bench) []byte { return format.AppendRow(nil, b.id(zoe), 0, nil, []uint64{uint64(b.id(alice))}) }
	// container makes a set whose row is right, and whose container lies under a given key.
	container := func(b *bench, key func(set []byte, block uint64) []byte) string {
		at := b.newSet(nil)
		delete(b.rows, at)
		k := key(format.AppendRowKey(nil, 4, b.id(zoe)), format.BlockOf(uint64(b.id(alice))))
		b.rows[string(k)] = format.AppendContainer(nil, []uint16{uint16(b.id(alice))}, nil)
		return says(k)
	}
	testBroken(t, map[string]breakage{
		"several partitions, a row key without a partition": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			key := format.AppendRowKey(nil, 4, b.id(zoe))
			b.rows[string(key)] = row(b)
			return says(key)
		},
		"several partitions, a container without the mark": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			return container(b, format.AppendBlock)
		},
		"one partition, a row key with a partition": func(b *bench) string {
			if b.Shared() {
				return ""
			}
			key := append(format.AppendRowKey(nil, 4, b.id(zoe)), 0)
			b.rows[string(key)] = row(b)
			return says(key)
		},
		"one partition, a container with the mark": func(b *bench) string {
			if b.Shared() {
				return ""
			}
			return container(b, func(set []byte, block uint64) []byte {
				return format.AppendBlock(format.Layout{Settings: dict.SharedSettings}.Containers(set), block)
			})
		},
		"one partition, the hidden set's key with a partition": func(b *bench) string {
			if b.Shared() {
				return ""
			}
			key := append(format.AppendRowKey(nil, kinds.Hidden, 0), 0)
			b.rows[string(key)] = row(b)
			return says(key)
		},
	})
}

// TestOtherForms: readable rows and containers in another form than their own are reported.
func TestOtherForms(t *testing.T) {
	bitmap := func(members ...int) []byte {
		v := make([]byte, 1+format.BitmapBytes) // no removed members
		for _, m := range members {
			v[1+m/8] |= 1 << (m % 8)
		}
		return v
	}
	ascending := func(n int) (all []int) {
		for i := range n {
			all = append(all, 3*i)
		}
		return all
	}
	short := func(members []int) breakage {
		return func(b *bench) string {
			return fmt.Sprintf("container %x has %d bytes; expected %d", b.newSet(bitmap(members...)), 1+format.BitmapBytes, 1+2*len(members))
		}
	}
	testBroken(t, map[string]breakage{
		"a row that removes its member": func(b *bench) string {
			key, id := string(b.row(4, b.id(zoe), b.id(alice))), uint64(b.id(alice))
			b.rows[key] = format.AppendRow(nil, b.id(zoe), 1, []uint64{id}, []uint64{id})
			return fmt.Sprintf("row %x has %d both as a member and as removed", key, id)
		},
		"an empty bitmap":             short(nil),
		"a bitmap of too few members": short(ascending(format.ArrayMax - 1)),
	})
}

// TestMalformedRest: unreadable rows of the small keyspaces are reported.
func TestMalformedRest(t *testing.T) {
	ways := map[string]breakage{}
	for _, keyspace := range []byte{format.KeyCursor, format.KeyDeadLetter, format.KeyGap} {
		for name, v := range map[string]string{"empty": "", "cut": "{", "no object": "7"} {
			ways[fmt.Sprintf("%q: %s", keyspace, name)] = func(b *bench) string {
				key := b.first(keyspace, func(string, []byte) bool { return true })
				if key == "" {
					b.t.Fatalf("no row of keyspace %q", keyspace)
				}
				b.rows[key] = []byte(v)
				return fmt.Sprintf("%s %x: ", format.KeyspaceOf([]byte(key)), key)
			}
		}
	}
	for _, keyspace := range []byte{format.KeyDeadLetter, format.KeyGap} {
		ways[fmt.Sprintf("%q: a key that is cut", keyspace)] = func(b *bench) string {
			key := format.NoteKey(keyspace, 1, 1, "")
			key = key[:len(key)-1]
			b.rows[string(key)] = []byte("{}")
			return fmt.Sprintf("%s %x: its key is malformed", format.KeyspaceOf(key), key)
		}
	}
	for name, c := range map[string]struct{ key, value, says string }{
		"a truncated claim":           {string(format.ClaimKey(3)), "{", ""},
		"an empty claim":              {string(format.ClaimKey(3)), "", ""},
		"a claim without a partition": {"p", "{}", "its key is malformed"},
		"a claim of two partitions":   {"p\x01\x02", "{}", "its key is malformed"},
		"a claim without an end":      {string(format.ClaimKey(0)), `{"token":"AA==","owner":"a"`, ""},
	} {
		ways[name] = func(b *bench) string {
			b.rows[c.key] = []byte(c.value)
			return fmt.Sprintf("claims %x: %s", c.key, c.says)
		}
	}
	for name, v := range map[string][]byte{"empty": {}, "cut": make([]byte, 7), "too long": make([]byte, 9)} {
		ways["the hidden set's version, "+name] = func(b *bench) string {
			b.rows[string(b.PartKey(format.KeyHidden, 0))] = v
			return fmt.Sprintf("the hidden set's version is %x", v)
		}
	}
	for name, v := range map[string][]byte{"empty": {}, "cut": []byte(`{"Version":256`), "of another version": []byte(`{"Version":258}`)} {
		ways["changes of the hidden accounts, "+name] = func(b *bench) string {
			key := b.HidingKey(0, 256)
			b.rows[string(key)] = v
			return fmt.Sprintf("changes of the hidden accounts %x: %x", key, v)
		}
	}
	testBroken(t, ways)
	// Healthy rows are not reported. Only stores with several writers have claims.
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		b.rows[string(format.ClaimKey(3))] = []byte(`{"token":"AA==","owner":"a","since":"2026-01-02T03:04:05Z"}`)
		b.rows[string(b.CursorKey(0, "another"))] = format.CursorRow{Number: 9, Seq: 5}.Value()
		b.rows[string(format.NoteKey(format.KeyGap, 9, 5, ""))] = []byte(`{"source":"another","after":5}`)
		for _, p := range b.problems() {
			t.Error(p)
		}
	})
}
