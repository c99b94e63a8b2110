package read_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// entry is a record that a test has read.
type entry struct {
	actor   dict.ID
	path    format.Path
	subject string
}

func (v *view) entry(k kinds.Info, actor dict.ID, r *format.Record) entry {
	e := entry{actor, r.Path, ""}
	if r.Path.Raw != nil {
		e.path.Raw = []byte(string(r.Path.Raw))
	}
	if r.Subject != dict.None {
		e.subject = v.name[k.To.Is()][r.Subject]
	}
	return e
}

// after reports whether e sorts after f by key.
func (e entry) after(f entry) bool {
	if e.actor != f.actor {
		return e.actor > f.actor
	}
	if x, y := e.path.Bucket(), f.path.Bucket(); x != y {
		return x > y
	}
	return format.ComparePaths(e.path, f.path) > 0
}

// compareRecords compares the records read of a kind with the twin's.
func compareRecords(t *testing.T, v *view, k kinds.Info, got []entry) {
	t.Helper()
	want := 0
	for p := range v.records {
		if p.kind == k.Kind {
			want++
		}
	}
	for i, e := range got {
		p := path{k.Kind, v.name[dict.DID][e.actor], string(e.path.AppendRkey(nil))}
		subject, ok := v.records[p]
		if !ok || subject != e.subject {
			t.Errorf("%s: %v names %q, the twin has %q (%v)", k.Name, p, e.subject, subject, ok)
		}
		if i > 0 && !e.after(got[i-1]) {
			t.Errorf("%s: %v comes after %v", k.Name, e, got[i-1])
		}
	}
	if len(got) != want {
		t.Errorf("%s: %d records, want %d", k.Name, len(got), want)
	}
}

// TestRecords reads the records of all actors one after another, those of each actor, and stops early.
func TestRecords(t *testing.T) {
	eachState(t, func(t *testing.T, v *view) {
		all := 0
		for _, k := range kinds.All {
			var got []entry
			if err := read.RecordsUnder(v, []byte{format.KeyRecord, byte(k.Kind)}, func(actor dict.ID, r *format.Record) bool {
				got = append(got, v.entry(k, actor, r))
				return true
			}); err != nil {
				t.Fatal(err)
			}
			compareRecords(t, v, k, got)
			all += len(got)
			rest := got
			for _, actor := range slices.Sorted(maps.Keys(v.name[dict.DID])) {
				if err := read.Records(v, k.Kind, actor, func(r *format.Record) bool {
					if e := v.entry(k, actor, r); len(rest) == 0 || e.after(rest[0]) || rest[0].after(e) {
						t.Errorf("%s: %v is read, %d are left", k.Name, e, len(rest))
						return false
					}
					rest = rest[1:]
					return true
				}); err != nil {
					t.Fatal(err)
				}
			}
			if len(rest) > 0 {
				t.Errorf("%s: %d records are missing: %v", k.Name, len(rest), rest[0])
			}
			for most := 1; most <= len(got); most += 1 + most/2 {
				n := 0
				if err := read.RecordsUnder(v, []byte{format.KeyRecord, byte(k.Kind)}, func(actor dict.ID, r *format.Record) bool {
					if e := v.entry(k, actor, r); e.after(got[n]) || got[n].after(e) {
						t.Errorf("record %d is %v, and was %v", n, e, got[n])
					}
					n++
					return n < most
				}); err != nil || n != most {
					t.Errorf("asked for %d records, got %d: %v", most, n, err)
				}
			}
		}
		if err := read.RecordsUnder(v, []byte{format.KeyRecord}, func(dict.ID, *format.Record) bool { all--; return true }); err != nil || all != 0 {
			t.Errorf("reading all kinds at once and by kind differ by %d records: %v", all, err)
		}
	})
}

// TestRecordsNaming: RecordsNaming finds the records with wanted subjects, and may be stopped.
func TestRecordsNaming(t *testing.T) {
	eachState(t, func(t *testing.T, v *view) {
		for _, k := range kinds.All {
			for _, did := range v.dids[:12] {
				for n := range 4 { // wanted: the subjects whose id modulo 4 is n
					wanted := func(id dict.ID) bool { return uint64(id)%4 <= uint64(n) }
					want, w := map[path]string{}, read.Window{}
					for p, subject := range v.records {
						if p.kind == k.Kind && p.did == did && subject != "" && wanted(v.id[subject]) {
							want[p] = subject
							if at := format.ParsePath([]byte(p.rkey)); n%2 == 1 && at.HasTime() { // an arbitrary one
								w = read.WindowAround(at.TID)
							}
						}
					}
					maps.DeleteFunc(want, func(p path, _ string) bool { return !w.Has(format.ParsePath([]byte(p.rkey))) })
					all, calls := len(want), 0
					each := func(r *format.Record) bool {
						e := v.entry(k, v.id[did], r)
						p := path{k.Kind, did, string(e.path.AppendRkey(nil))}
						if subject, ok := want[p]; !ok || subject != e.subject {
							t.Errorf("%v names %q, want %q (%v)", p, e.subject, subject, ok)
						}
						delete(want, p)
						calls++
						return n != 2 || calls < 2
					}
					if err := read.RecordsNaming(v, k.Kind, v.id[did], w, wanted, each); err != nil {
						t.Fatal(err)
					}
					if n == 2 && calls != min(all, 2) || n != 2 && len(want) > 0 {
						t.Errorf("%d records were read, %d are missing: %v", calls, len(want), want)
					}
				}
			}
		}
	})
}

// TestBuckets: Buckets returns each bucket once, with all of its chunks. The stream spills, so
// chunks of TIDs and of raw keys are several levels deep, in many buckets.
func TestBuckets(t *testing.T) {
	eachState(t, func(t *testing.T, v *view) {
		var chunks, want int
		var deepest [2]int
		if err := kv.ScanPrefix(v, []byte{format.KeyRecord}, func(k, _ []byte) error {
			_, _, bucket, depth, err := format.ParseChunkKey(k)
			which := bucket >> 14 // 1 of raw keys
			deepest[which] = max(deepest[which], depth)
			want++
			return err
		}); err != nil {
			t.Fatal(err)
		}
		numbers := map[uint16]bool{}
		for _, k := range kinds.All {
			for did := range v.repos {
				last, here := -1, 0
				if err := read.Buckets(v, format.AppendRecordsKey(nil, k.Kind, v.id[did]), func(b *read.Bucket) bool {
					if int(b.Number) <= last || b.Chunks == 0 {
						t.Errorf("bucket %d, of %d chunks, comes after %d", b.Number, b.Chunks, last)
					}
					for _, r := range b.Records {
						if r.Path.Bucket() != b.Number {
							t.Errorf("bucket %d holds %v", b.Number, r.Path)
						}
					}
					last = int(b.Number)
					numbers[b.Number] = true
					chunks += b.Chunks
					here++
					return true
				}); err != nil {
					t.Fatal(err)
				}
				once := 0
				err := read.Buckets(v, format.AppendRecordsKey(nil, k.Kind, v.id[did]), func(*read.Bucket) bool { once++; return false })
				if err != nil || once != min(here, 1) {
					t.Errorf("%d buckets were read, want one: %v", once, err)
				}
			}
		}
		if chunks != want {
			t.Errorf("the buckets have %d chunks, the store %d", chunks, want)
		}
		if len(numbers) < 20 || deepest[0] < 3 || deepest[1] < 1 {
			t.Errorf("%d buckets, %d levels deep: the stream covers too little", len(numbers), deepest)
		}
	})
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
				read.RecordsUnder(r, []byte{format.KeyRecord, 1}, func(dict.ID, *format.Record) bool { return true }),
				read.RecordsNaming(r, 1, actor, read.Window{}, func(dict.ID) bool { return true }, all),
				read.Buckets(r, []byte{format.KeyRecord}, func(*read.Bucket) bool { return true }),
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
