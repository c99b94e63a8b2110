package read_test

import (
	"maps"
	"math"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// TestRecordsNaming: RecordsNaming finds the records in a window that name wanted subjects, or any or none.
// Both may be stopped.
func TestRecordsNaming(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 8, Chunk: 8})})
	g := oracle.GraphOn(t, 11, 8, store)
	for range 20 {
		g.Grow(200)
		for range 20 { // keys of few minutes: leaves are written again and again
			o := oracle.Op{Kind: "follow", Rkey: string(dict.AppendTID(nil, 1<<60|g.Rand.Uint64N(64)<<24)), Delete: g.Rand.IntN(3) == 0}
			if !o.Delete {
				o.Subject = g.Any(g.Accounts)
			}
			g.Commit(g.Accounts[0], o)
		}
	}
	leaves := 0
	if err := store.View(t.Context(), func(r kv.Reader) error {
		id, name := map[string]dict.ID{}, map[dict.Namespace]map[dict.ID]string{dict.DID: {}, dict.URI: {}}
		for _, ns := range dict.Namespaces {
			var ids []dict.ID
			if err := intern.EachString(r, ns, func(_ []byte, id dict.ID) error { ids = append(ids, id); return nil }); err != nil {
				return err
			}
			if err := intern.Strings(r, ns, ids, func(i int, s []byte) error {
				id[string(s)], name[ns][ids[i]] = ids[i], string(s)
				return nil
			}); err != nil {
				return err
			}
		}
		for _, k := range kinds.All {
			for _, did := range g.Accounts {
				for n := range 5 { // wanted: the subjects whose id modulo 4 is up to n
					wanted := func(id dict.ID) bool { return uint64(id)%4 <= uint64(n) }
					want, w := map[string]string{}, read.Window{}
					for p, subject := range g.Model.Records {
						if p.Kind != k.Name || p.DID != did || n < 4 && (subject == "" || !wanted(id[subject])) {
							continue
						}
						want[p.Rkey] = subject
						if at := format.ParsePath([]byte(p.Rkey)); n%2 == 1 && at.HasTime() { // an arbitrary one
							w = read.Window{From: at.TID, To: at.TID + 1<<50}
						}
					}
					maps.DeleteFunc(want, func(rkey, _ string) bool { return !w.Has(format.ParsePath([]byte(rkey))) })
					all, calls := len(want), 0
					each := func(r *format.Record) bool {
						rkey := string(r.Path.AppendRkey(nil))
						if subject, ok := want[rkey]; !ok || subject != name[k.To.Is()][r.Subject] {
							t.Errorf("%s of %s: %s names %d, want %q (%v)", k.Name, did, rkey, r.Subject, subject, ok)
						}
						delete(want, rkey)
						calls++
						return n != 2 || calls < 2
					}
					var err error
					if n == 4 {
						err = read.RecordsNaming(r, k.Kind, id[did], w, nil, each)
					} else {
						err = read.RecordsNaming(r, k.Kind, id[did], w, wanted, each)
					}
					if err != nil {
						return err
					}
					if n == 2 && calls != min(all, 2) || n != 2 && len(want) > 0 {
						t.Errorf("%d records were read, %d are missing: %v", calls, len(want), want)
					}
				}
			}
		}
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, _ []byte) error {
			_, _, _, isLeaf, err := format.ParseChunkKey(k)
			if isLeaf {
				leaves++
			}
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	if leaves < 20 {
		t.Errorf("%d leaves: too few heads were spilled", leaves)
	}
}

// TestMalformedRecords: every reader of records returns an error that names the malformed
// chunk.
func TestMalformedRecords(t *testing.T) {
	actor := dict.ID(77)
	c, head := format.CoderOf(1, actor), string(format.AppendRecordsKey(nil, 1, actor))
	leaf := func(tid uint64) (key string, value []byte) {
		p := format.Path{TID: tid}
		return string(format.AppendLeafKey([]byte(head), p)), c.Append(nil, 0, []format.Record{{Path: p, Subject: 5}})
	}
	first, value := leaf(1)
	second, _ := leaf(1 << 60)
	for name, test := range map[string]struct {
		key   string
		value []byte
		want  string
	}{
		"nothing wrong":         {second, nil, ""},
		"an empty name":         {second, []byte{1}, "malformed record chunk"},
		"cut":                   {second, value[:len(value)-1], "malformed record chunk"},
		"a key too long":        {second + "0", value, "is malformed"},
		"a key too short":       {second[:len(second)-1], value, "is malformed"},
		"a key of no bytes":     {head + "\x80", value, "is malformed"},
		"an unknown flag":       {second, []byte{1, 0xf0, 0}, "malformed record chunk"},
		"a generation of 0":     {second, []byte{1, 4 << 2, 0, 0}, "malformed record chunk"},
		"a raw key that is cut": {head + "\x80a", []byte{1, 0x20, 0, 2, 'a'}, "malformed record chunk"},
		"a head that is cut":    {head, []byte{1, 4 << 2, 0, 1, 1}, "malformed record chunk"},
	} {
		rows := map[string][]byte{head: c.Append(nil, math.MaxUint64, nil), first: value}
		rows[test.key] = test.value
		raw(t, rows, func(r kv.Reader) {
			all := func(*format.Record) bool { return true }
			_, subjects := read.AppendSubjects(r, 1, actor, read.Window{}, nil)
			for i, err := range []error{
				read.Records(r, 1, actor, all),
				read.RecordsBetween(r, 1, 0, 1<<40, func(dict.ID, *format.Record) bool { return true }),
				read.RecordsNaming(r, 1, actor, read.Window{}, func(dict.ID) bool { return true }, all),
				read.RecordsNaming(r, 1, actor, read.Window{}, nil, all),
				read.RecordsWithin(r, 1, actor, 0, 1<<60, all),
				subjects,
			} {
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: reader %d says %v, want %q", name, i, err, test.want)
				}
			}
			// A reader that stops earlier does not see it.
			if err := read.Records(r, 1, actor, func(*format.Record) bool { return false }); err != nil && test.key != head {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// reused has one buffer for the values that Get returns, like engines on disk.
type reused struct {
	kv.Reader

	buf []byte
}

func (r *reused) Get(key []byte) ([]byte, bool, error) {
	v, ok, err := r.Reader.Get(key)
	r.buf = append(r.buf[:0], v...)
	return r.buf, ok, err
}

// TestReadsWithinRecords: what is called for a record may read.
func TestReadsWithinRecords(t *testing.T) {
	const actor = dict.ID(77)
	c, head := format.CoderOf(1, actor), format.AppendRecordsKey(nil, 1, actor)
	var records []format.Record
	for _, key := range []string{"a", "bcd", "self"} {
		records = append(records, format.Record{Path: format.Path{Raw: []byte(key)}, Subject: 5})
	}
	for _, reach := range []uint64{0, math.MaxUint64} {
		raw(t, map[string][]byte{string(head): c.Append(nil, reach, records), "other": []byte("something else that is longer")}, func(r kv.Reader) {
			r = &reused{Reader: r, buf: make([]byte, 0, 100)}
			var keys string
			if err := read.Records(r, 1, actor, func(rec *format.Record) bool {
				_, ok, err := r.Get([]byte("other"))
				keys += string(rec.Path.Raw) + " "
				return ok && err == nil
			}); err != nil || keys != "a bcd self " {
				t.Errorf("reach %d: the keys are %q, %v", reach, keys, err)
			}
		})
	}
}

// raw calls read with a Reader of a store that has the given rows.
func raw(t *testing.T, rows map[string][]byte, read func(kv.Reader)) {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		for k, v := range rows {
			tx.Set([]byte(k), v)
		}
		return nil
	})
	if err == nil {
		err = store.View(t.Context(), func(r kv.Reader) error { read(r); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
}
