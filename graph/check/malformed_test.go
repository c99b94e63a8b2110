package check

import (
	"encoding/binary"
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

// TestKeysOfTheOtherLayout: nothing reads keys of another layout, so they are reported.
func TestKeysOfTheOtherLayout(t *testing.T) {
	other := func(shared bool, key func(b *bench, l format.Layout) []byte) breakage {
		return func(b *bench) string {
			if b.Shared() != shared {
				return ""
			}
			l := format.Layout{Settings: dict.SharedSettings}
			if l.Settings.ShardBits = b.Settings.ShardBits; shared {
				l.Settings.Partitions = 1
			}
			b.spilledSet()
			k := key(b, l)
			b.rows[string(k)] = format.AppendRow(nil, b.id(zoe), 0, nil, []uint64{uint64(b.id(alice))}, nil)
			return fmt.Sprintf("set key %x is malformed, not of this store's layout, or of an unknown kind", k)
		}
	}
	row := func(b *bench, l format.Layout) []byte { return l.AppendMemberKey(nil, 4, b.id(zoe), b.id(alice)) }
	leaf := func(b *bench, l format.Layout) []byte { return l.AppendSetLeafKey(nil, 4, b.id(zoe), b.id(alice)) }
	testBroken(t, map[string]breakage{
		"several partitions, a row key without a partition":  other(true, row),
		"several partitions, a leaf key without a partition": other(true, leaf),
		"several partitions, a partition that is none": other(true, func(b *bench, _ format.Layout) []byte {
			return append(format.AppendRowKey(nil, 4, b.id(zoe)), b.Settings.Partitions)
		}),
		"several partitions, a leaf of another partition than its last member": other(true, func(b *bench, _ format.Layout) []byte {
			key := b.AppendSetLeafKey(nil, 4, b.id(zoe), b.id(alice))
			key[len(b.LeavesBeside(key))-1] ^= 1
			return key
		}),
		"one partition, a row key with a partition":  other(false, row),
		"one partition, a leaf key with a partition": other(false, leaf),
		"one partition, the hidden set's key with a partition": other(false, func(*bench, format.Layout) []byte {
			return append(format.AppendRowKey(nil, kinds.Hidden, 0), 0)
		}),
	})
}

// TestOtherForms: readable rows and leaves in another form than their own are reported.
func TestOtherForms(t *testing.T) {
	testBroken(t, map[string]breakage{
		"a row with dates that say nothing": func(b *bench) string {
			b.spilledSet()
			key, id := string(b.row(4, b.id(zoe), b.id(alice))), []uint64{uint64(b.id(alice))}
			v := format.AppendRow(nil, b.id(zoe), 1, nil, id, []uint32{7})
			b.rows[key] = binary.LittleEndian.AppendUint32(v[:len(v)-4], format.OneRecord)
			return fmt.Sprintf("set %x is %x; expected %x", key, b.rows[key], format.AppendRow(nil, b.id(zoe), 1, nil, id, nil))
		},
		"a leaf with the length of its list in two bytes": func(b *bench) string {
			m := []uint64{b.spilledSet()}
			key := b.setLeaf(m[0], 0, nil, m)
			v := format.AppendRow(nil, b.id(zoe), 0, nil, m, []uint32{7})
			b.rows[key] = append([]byte{v[0], v[1], 0x81, 0}, v[3:]...)
			return fmt.Sprintf("set %x is %x; expected %x", key, b.rows[key], v)
		},
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
	token := []byte("0123456789abcdef")
	for name, c := range map[string]struct{ key, value, says string }{
		"a truncated claim":       {string(format.ClaimKey(token)), "{", ""},
		"an empty claim":          {string(format.ClaimKey(token)), "", ""},
		"a claim without a token": {"p", "{}", "its key is malformed"},
		"a claim of half a token": {"p\x01\x02", "{}", "its key is malformed"},
		"a claim without an end":  {string(format.ClaimKey(token)), `{"owner":"a"`, ""},
	} {
		ways[name] = func(b *bench) string {
			b.rows[c.key] = []byte(c.value)
			return fmt.Sprintf("claims %x: %s", c.key, c.says)
		}
	}
	for name, v := range map[string][]byte{"empty": {}, "cut": make([]byte, 7), "too long": make([]byte, 9)} {
		ways["the hidden set's version, "+name] = func(b *bench) string {
			b.rows[string(format.PartKey(format.KeyHidden, 0))] = v
			return fmt.Sprintf("the hidden set's version is %x", v)
		}
	}
	for name, v := range map[string][]byte{"empty": {}, "cut": []byte(`{"Version":256`), "of another version": []byte(`{"Version":258}`)} {
		ways["changes of the hidden accounts, "+name] = func(b *bench) string {
			key := format.HidingKey(0, 256)
			b.rows[string(key)] = v
			return fmt.Sprintf("changes of the hidden accounts %x: %x", key, v)
		}
	}
	testBroken(t, ways)
	// Healthy rows are not reported. Only stores with several writers have claims.
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		b.rows[string(format.ClaimKey(token))] = []byte(`{"parts":6,"owner":"a","since":"2026-01-02T03:04:05Z"}`)
		b.rows[string(format.CursorKey(0, "another"))] = format.CursorRow{Number: 9, Seq: 5}.Value()
		b.rows[string(format.NoteKey(format.KeyGap, 9, 5, ""))] = []byte(`{"source":"another","after":5}`)
		for _, p := range b.problems() {
			t.Error(p)
		}
	})
}
