package dict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"skein.blue/internal/sim/harness"
)

const (
	goldenDID = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	otherDID  = "did:plc:z72i7hdynmk6r22z27h6tvur"
	shortTID  = 1_767_225_600_123_000<<ClockBits | 17 // of a whole millisecond
	longTID1  = 1_767_225_600_123_456<<ClockBits | 17

	author     = ID(5<<26 | 0x30201)
	longAuthor = ID(1<<63 | 70<<49 | 0x4030201)
)

func readID(v []byte) (string, error) {
	id, n := ReadID(v)
	if n != len(v) {
		return "", fmt.Errorf("%d of %d bytes are an id", n, len(v))
	}
	return fmt.Sprintf("%#x", uint64(id)), nil
}

func readDID(v []byte) (string, error) { return string(AppendDID(nil, v)), nil }

func readURI(v []byte) (string, error) {
	tid, author, collection, packed, err := UnpackURI(v)
	if !packed {
		return string(UnpackRaw(v)), err
	}
	return string(AppendURI(nil, fmt.Appendf(nil, "<%#x>", uint64(author)), collection, tid)), err
}

func readGroup(ns Namespace) func(v []byte) (string, error) {
	return func(v []byte) (string, error) {
		var words []string
		var failed error
		err := EachEntry(v, func(e *Entry) bool {
			text, err := "a row of its own", error(nil)
			if form := e.AppendForm(nil); e.Kind != KindOwn {
				if text, err = readDID(form); ns == URI {
					text, err = readURI(form)
				}
			}
			words, failed = append(words, fmt.Sprintf("%d kind %d %s", e.At, e.Kind, text)), errors.Join(failed, err)
			return true
		})
		return strings.Join(words, ", "), errors.Join(err, failed)
	}
}

// formOf returns the form of a string; author is its author's id.
func formOf(ns Namespace, s string, author ID) []byte {
	if ns == DID {
		return PackDID(nil, []byte(s))
	}
	if p, ok := SplitURI([]byte(s)); ok {
		return AppendPackedURI(nil, p.TID, author, p.Collection)
	}
	return AppendRaw(nil, URI, []byte(s))
}

func uriOf(did, collection string, tid uint64) string {
	return "at://" + did + "/" + collection + "/" + string(AppendTID(nil, tid))
}

func goldenIDs() (forms []harness.Form) {
	for _, id := range []ID{None, 1, author, FirstLong - 1, FirstLong, 1<<40 - 1, 1 << 40, longAuthor, FirstReserved - 1, 1<<64 - 1} {
		forms = append(forms, harness.NewForm(fmt.Sprintf("id %#x", uint64(id)), AppendID(nil, id), readID))
	}
	return forms
}

func goldenStrings() (forms []harness.Form) {
	for _, c := range []struct{ name, s string }{
		{"plc", goldenDID},
		{"plc of the lowest bits", "did:plc:" + strings.Repeat("a", plcChars)},
		{"plc of the highest bits", "did:plc:" + strings.Repeat("7", plcChars)},
		{"plc that is none", "did:plc:ewvi7nxzyoun6zhxrhs64oi1"},
		{"web", "did:web:example.com"},
		{"web as long as a packed one", "did:web:abc.xyz"},
	} {
		forms = append(forms, harness.NewForm("did, "+c.name, formOf(DID, c.s, None), readDID))
	}
	for _, a := range []ID{author, longAuthor} {
		name := "author of a short id"
		if a == longAuthor {
			name = "author of a long id"
		}
		forms = append(forms,
			harness.NewForm("uri, post of the shorter form, "+name, formOf(URI, uriOf(goldenDID, "app.bsky.feed.post", shortTID), a), readURI),
			harness.NewForm("uri, post of another microsecond, "+name, formOf(URI, uriOf(goldenDID, "app.bsky.feed.post", longTID1), a), readURI),
			harness.NewForm("uri, post of another clock, "+name, formOf(URI, uriOf(goldenDID, "app.bsky.feed.post", shortTID|32), a), readURI))
		for i, collection := range packedCollections[1:] {
			forms = append(forms, harness.NewForm(fmt.Sprintf("uri, collection %d, %s", i+1, name), formOf(URI, uriOf(goldenDID, collection, shortTID), a), readURI))
		}
	}
	for _, s := range []string{
		"at://ab.cde", "at://abc.def", "at://abc.defgh", "at://abcd.efghi", "at://abcd.efghij", "at://abcd.efghijkl", "at://abcd.efghijklm",
		"at://" + goldenDID + "/app.bsky.feed.post/self", "at://" + goldenDID,
	} {
		forms = append(forms, harness.NewForm("uri, raw: "+s, formOf(URI, s, None), readURI))
	}
	return forms
}

// goldenGroup makes a group of strings with the ids 64, 67, 70, …
func goldenGroup(ns Namespace, forms ...[]byte) (v []byte) {
	var w GroupWriter
	for i, f := range forms {
		e := EntryOf(ns, 64+ID(3*i), f)
		v = w.Append(v, &e)
	}
	return v
}

func goldenGroups() []harness.Form {
	post := func(millis uint64, author ID) []byte {
		return formOf(URI, uriOf(goldenDID, "app.bsky.feed.post", shortTID+millis*1000<<ClockBits), author)
	}
	like := formOf(URI, uriOf(goldenDID, "app.bsky.feed.like", longTID1), author)
	raw, long := formOf(URI, "at://abc.defgh", None), formOf(URI, "at://"+goldenDID+"/a.b.c/"+strings.Repeat("x", 300), None)
	return []harness.Form{
		harness.NewForm("group of nothing", goldenGroup(DID), readGroup(DID)),
		harness.NewForm("group of a plc", goldenGroup(DID, formOf(DID, goldenDID, None)), readGroup(DID)),
		harness.NewForm("group of plcs and a web", goldenGroup(DID, formOf(DID, goldenDID, None), formOf(DID, "did:web:abc.xyz", None), formOf(DID, otherDID, None)), readGroup(DID)),
		harness.NewForm("group of posts", goldenGroup(URI, post(5, author), post(4, author+1), post(4, longAuthor), post(9, author)), readGroup(URI)),
		harness.NewForm("group of forms", goldenGroup(URI, like, raw, like), readGroup(URI)),
		harness.NewForm("group of an own row", goldenGroup(URI, long), readGroup(URI)),
		harness.NewForm("group of all kinds", goldenGroup(URI, post(5, author), like, raw, long, post(6, author-1)), readGroup(URI)),
		harness.NewForm("group of the last of its ids", func() []byte {
			e := EntryOf(DID, 127, formOf(DID, goldenDID, None))
			return new(GroupWriter).Append(nil, &e)
		}(), readGroup(DID)),
	}
}

// goldenLeases are leases in each state.
var goldenLeases = []Lease{
	{BlockKey: BlockKey{DID, 5, 9}, Owner: "host:1", Token: 0x0123456789abcdef},
	{BlockKey: BlockKey{URI, 1<<32 - 1, 1<<47 - 1}, Token: 1<<64 - 1},
	{BlockKey: BlockKey{URI, 0, 0}, Owner: "a name of some length, with \xff", Token: 0},
}

func readLease(key []byte) func(v []byte) (string, error) {
	return func(v []byte) (string, error) {
		l, err := DecodeLease(key, v)
		return fmt.Sprintf("%v shard %d block %d owner %q token %#x", l.Namespace, l.Shard, l.Block, l.Owner, l.Token), err
	}
}

func goldenRows() (forms []harness.Form) {
	for i, l := range goldenLeases {
		key := AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block)
		forms = append(forms,
			harness.NewForm(fmt.Sprintf("lease %d, key", i), key, func(key []byte) (string, error) {
				l, err := DecodeLease(key, goldenLeases[0].Value())
				return fmt.Sprintf("%q %+v", key[0], l.BlockKey), err
			}),
			harness.NewForm(fmt.Sprintf("lease %d", i), l.Value(), readLease(key)))
	}
	for _, c := range []struct {
		name string
		key  []byte
	}{
		{"counter of a shard", AppendNextKey(nil, URI, 0x01020304)},
		{"group of a short id", AppendGroupKey(nil, DID, author)},
		{"group of a long id", AppendGroupKey(nil, URI, longAuthor)},
		{"own row of a short id", AppendOwnKey(nil, URI, author)},
		{"own row of a long id", AppendOwnKey(nil, URI, longAuthor|63)},
	} {
		forms = append(forms, harness.NewForm("key, "+c.name, c.key, func(key []byte) (string, error) {
			if key[0] == KeyNext {
				return fmt.Sprintf("shard %d of %v", binary.BigEndian.Uint32(key[2:]), Namespace(key[1])), nil
			}
			first, n := ReadID(key[2:])
			return fmt.Sprintf("group of %#x of %v, then %d", uint64(first), Namespace(key[1]), key[2+n:]), nil
		}))
	}
	return forms
}

// TestGoldenForms: every form is written and read as in existing stores.
func TestGoldenForms(t *testing.T) {
	harness.CheckGolden(t, "ids.golden", goldenIDs())
	harness.CheckGolden(t, "strings.golden", goldenStrings())
	harness.CheckGolden(t, "groups.golden", goldenGroups())
	harness.CheckGolden(t, "rows.golden", goldenRows())
}

// TestGoldenPartitions: stores depend on the partitions of DIDs, which must never change.
func TestGoldenPartitions(t *testing.T) {
	var forms []harness.Form
	for _, did := range []string{
		goldenDID, otherDID, "did:plc:" + strings.Repeat("a", plcChars), "did:plc:" + strings.Repeat("7", plcChars),
		"did:web:example.com", "did:web:abc.xyz", "did:plc:ewvi7nxzyoun6zhxrhs64oi1", "did:plc:short",
	} {
		var parts []byte
		for bits := range 7 {
			parts = append(parts, Settings{ShardBits: 14, LeaseSize: 1 << 16, Partitions: 1 << bits}.PartitionOf([]byte(did)))
		}
		forms = append(forms, harness.NewForm(did, parts, func(v []byte) (string, error) {
			for bits, part := range v { // fewer partitions are the lower bits
				if part != v[6]&(1<<bits-1) {
					return "", fmt.Errorf("partition %d of %d, and %d of 64", part, 1<<bits, v[6])
				}
			}
			return fmt.Sprintf("partition %d of 64", v[6]), nil
		}))
	}
	harness.CheckGolden(t, "partitions.golden", forms)
}
