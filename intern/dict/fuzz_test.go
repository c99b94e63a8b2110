package dict

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"skein.blue/internal/sim/harness"
)

// groupAgain decodes a group and encodes it again.
func groupAgain(v []byte) (again []byte, err error) {
	var w GroupWriter
	err = EachEntry(v, func(e *Entry) bool { again = w.Append(again, e); return true })
	return again, err
}

// uriAgain decodes the form of a URI and encodes it again.
func uriAgain(v []byte) ([]byte, error) {
	tid, author, collection, packed, err := UnpackURI(v)
	if !packed {
		return AppendRaw(nil, URI, UnpackRaw(v)), err
	}
	return AppendPackedURI(nil, tid, author, collection), err
}

func didAgain(v []byte) ([]byte, error) { return PackDID(nil, AppendDID(nil, v)), nil }

// leaseAgain decodes a lease row; here, its first 14 bytes are the key.
func leaseAgain(v []byte) ([]byte, error) {
	l, err := DecodeLease(v[:min(14, len(v))], v[min(14, len(v)):])
	return append(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value()...), err
}

func idAgain(v []byte) ([]byte, error) {
	id, n := ReadID(v)
	if n == 0 {
		return nil, ErrMalformed
	}
	return append(AppendID(nil, id), v[n:]...), nil
}

func codecs() []harness.Codec {
	bytesOf := func(forms []harness.Form, prefix string) (out [][]byte) {
		for _, f := range forms {
			if len(f.Name) >= len(prefix) && f.Name[:len(prefix)] == prefix {
				out = append(out, f.Bytes)
			}
		}
		return out
	}
	var leases [][]byte
	for _, l := range goldenLeases {
		leases = append(leases, append(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value()...))
	}
	return []harness.Codec{
		{Name: "group", Again: groupAgain, Valid: bytesOf(goldenGroups(), "group")},
		{Name: "uri", Again: uriAgain, Valid: bytesOf(goldenStrings(), "uri")},
		{Name: "did", Again: didAgain, Valid: bytesOf(goldenStrings(), "did")},
		{Name: "lease", Again: leaseAgain, Valid: leases},
		{Name: "id", Again: idAgain, Valid: bytesOf(goldenIDs(), "id"), Exact: true},
	}
}

// TestBrokenValues truncates values, and changes single bytes. A decoder refuses the result, or
// reads another value. A truncated group, which is a list, may be a shorter group.
func TestBrokenValues(t *testing.T) {
	for _, c := range codecs() {
		refused, read := 0, 0
		try := func(v []byte) (again []byte, ok bool) {
			if again, ok = c.Check(t, v); ok {
				read++
			} else {
				refused++
			}
			return again, ok
		}
		for _, v := range c.Valid {
			if again, ok := try(v); !ok || !bytes.Equal(again, v) {
				t.Errorf("%s: %x is written again as %x", c.Name, v, again)
			}
			for n := range v {
				if again, ok := try(v[:n]); ok && c.Name != "uri" && c.Name != "did" && !bytes.Equal(again, v[:n]) {
					t.Errorf("%s: %x, truncated to %x, is read as %x", c.Name, v, v[:n], again)
				}
			}
			changed := bytes.Clone(v)
			for i := range v {
				for by := 1; by < 256; by++ {
					changed[i] = v[i] ^ byte(by)
					try(changed)
				}
				changed[i] = v[i]
			}
		}
		if read == 0 || refused == 0 && c.Name != "did" { // every form is a DID
			t.Errorf("%s: %d values are refused, and %d are read", c.Name, refused, read)
		}
	}
}

// TestHostileLengths: a reader does not allocate memory for the length that a group claims.
func TestHostileLengths(t *testing.T) {
	for _, c := range codecs() {
		for _, v := range c.Valid {
			for i := range v {
				hostile := slices.Concat(v[:i], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, v[i:])
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				c.Check(t, hostile)
				runtime.ReadMemStats(&after)
				if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<14+64*len(hostile)); got > limit {
					t.Errorf("%s: %d bytes are allocated for %x", c.Name, got, hostile)
				}
			}
		}
	}
}

func fuzzCodec(f *testing.F, name string) {
	f.Helper()
	for _, c := range codecs() {
		if c.Name != name {
			continue
		}
		for _, v := range c.Valid {
			f.Add(v)
			f.Add(v[:len(v)/2])
		}
		f.Fuzz(func(t *testing.T, v []byte) { c.Check(t, v) })
		return
	}
	f.Fatalf("no codec is called %q", name)
}

func FuzzGroup(f *testing.F) { fuzzCodec(f, "group") }
func FuzzURI(f *testing.F)   { fuzzCodec(f, "uri") }
func FuzzDID(f *testing.F)   { fuzzCodec(f, "did") }
func FuzzLease(f *testing.F) { fuzzCodec(f, "lease") }
func FuzzID(f *testing.F)    { fuzzCodec(f, "id") }

// FuzzFoldGroups: what folds is a group in its one form. TestGroups proves what it holds.
func FuzzFoldGroups(f *testing.F) {
	groups := codecs()[0].Valid
	for i, v := range groups {
		f.Add(v, groups[(i+1)%len(groups)])
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		v, err := FoldGroups(nil, [][]byte{a, b})
		if err != nil {
			return
		}
		last := -1
		err = EachEntry(v, func(e *Entry) bool {
			if int(e.At) <= last {
				t.Errorf("%x + %x: %d comes after %d", a, b, e.At, last)
			}
			last = int(e.At)
			return true
		})
		if again, err1 := FoldGroups(nil, [][]byte{v}); err != nil || err1 != nil || !bytes.Equal(again, v) {
			t.Errorf("%x folds to %x, %v, %v", v, again, err, err1)
		}
	})
}
