package read_test

import (
	"errors"
	"maps"
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

// TestRecordsNaming: RecordsNaming finds the records in a window that name wanted subjects, RecordsIn those that name any or none.
// Both may be stopped.
func TestRecordsNaming(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 8, Chunk: 8})})
	g := oracle.GraphOn(t, 11, 8, store)
	for range 20 {
		g.Grow(200)
		for range 20 { // keys within a minute: chunks are spilled several levels deep, and what lies there is written again
			o := oracle.Op{Kind: "follow", Rkey: string(dict.AppendTID(nil, 1<<60|g.Rand.Uint64N(64)<<24)), Delete: g.Rand.IntN(3) == 0}
			if !o.Delete {
				o.Subject = g.Any(g.Accounts)
			}
			g.Commit(g.Accounts[0], o)
		}
	}
	deepest := 0
	if err := store.View(t.Context(), func(r kv.Reader) error {
		id, name := map[string]dict.ID{}, map[dict.Namespace]map[dict.ID]string{dict.DID: {}, dict.URI: {}}
		for _, ns := range dict.Namespaces {
			var ids []dict.ID
			if err := intern.EachID(r, ns, func(id dict.ID) error { ids = append(ids, id); return nil }); err != nil {
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
						err = read.RecordsIn(r, k.Kind, id[did], w, each)
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
			_, _, _, depth, err := format.ParseChunkKey(k)
			deepest = max(deepest, depth)
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	if deepest < 2 {
		t.Errorf("chunks are %d levels deep: too few were spilled", deepest)
	}
}

// TestMalformedRecords: every reader of records returns an error that names the malformed
// chunk.
func TestMalformedRecords(t *testing.T) {
	actor := dict.ID(77)
	good := func(tid uint64) (key string, value []byte) {
		p := format.Path{TID: tid}
		return string(format.AppendChunkKey(nil, 1, actor, p, 0)),
			format.CoderOf(1, actor, p.Bucket()).Append(nil, 0, []format.Record{{Path: p, Subject: 5}})
	}
	first, value := good(1)
	second, _ := good(1 << format.BucketShift)
	deep := second + "1234567"
	for name, test := range map[string]struct {
		key   string
		value []byte
		want  string
	}{
		"nothing wrong":       {second, nil, ""},
		"an empty name":       {second, []byte{1}, "malformed record chunk"},
		"cut":                 {second, value[:len(value)-1], "malformed record chunk"},
		"too deep":            {deep, value, "is malformed"},
		"a bucket of a byte":  {second[:len(second)-1], value, "is malformed"},
		"an unknown flag":     {second, []byte{1, 0xf0, 0}, "malformed record chunk"},
		"a generation of 0":   {second, []byte{1, 4 << 2, 0, 0}, "malformed record chunk"},
		"a raw key too short": {string(format.AppendRecordsKey(nil, 1, actor)) + "\x40\x00", []byte{10, 'a'}, "malformed record chunk"},
	} {
		raw(t, map[string][]byte{first: value, test.key: test.value}, func(r kv.Reader) {
			all := func(*format.Record) bool { return true }
			for i, err := range []error{
				read.Records(r, 1, actor, all),
				read.RecordsBetween(r, 1, 0, 1<<40, func(dict.ID, *format.Record) bool { return true }),
				read.RecordsNaming(r, 1, actor, read.Window{}, func(dict.ID) bool { return true }, all),
				read.RecordsIn(r, 1, actor, read.Window{}, all),
			} {
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: reader %d says %v, want %q", name, i, err, test.want)
				}
			}
			// A reader that stops earlier does not see it.
			if err := read.Records(r, 1, actor, func(*format.Record) bool { return false }); errors.Is(err, format.ErrChunk) && test.key > second {
				t.Errorf("%s: %v", name, err)
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
