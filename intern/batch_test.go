package intern

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/intern/dict"
)

// TestBatchTellsApart: similar strings, and equal text in both namespaces, have different
// indexes.
func TestBatchTellsApart(t *testing.T) {
	tid := "3jzfcijpj2z2a"
	plc := "did:plc:" + strings.Repeat("a", 24)
	all := []named{
		{dict.DID, plc},
		{dict.DID, plc[:31] + "b"},
		{dict.DID, plc + "a"},
		{dict.DID, plc[:31]},
		{dict.DID, plc[:31] + "1"}, // not base32
		{dict.DID, "did:web:abc.com"},
		{dict.DID, "did:web:abc.con"},
		{dict.URI, "at://" + plc},
		{dict.URI, "at://" + plc + "/app.bsky.feed.post/" + tid},
		{dict.URI, "at://" + plc + "/app.bsky.feed.like/" + tid},
		{dict.URI, "at://" + plc + "/app.bsky.feed.post/" + tid[:12] + "b"},
		{dict.URI, "at://" + plc + "/app.bsky.feed.post/" + tid + "a"},
		{dict.URI, "at://" + plc[:31] + "b/app.bsky.feed.post/" + tid},
		{dict.URI, "at://" + plc + "/app.bsky.feed.post"},
		{dict.URI, "at://a.bc/app.bsky.feed.post/" + tid},
		{dict.URI, strings.Repeat("x", 300)},
		{dict.DID, strings.Repeat("x", 300)},
	}
	var b Batch
	at := map[int]named{}
	for _, s := range all {
		i := b.Add(s.ns, []byte(s.s))
		if other, ok := at[i]; ok {
			t.Errorf("%v and %v are both at %d", s, other, i)
		}
		at[i] = s
	}
}

// TestBatchForms: a batch stores a string in the form that package dict defines. The string is
// found under it, and decodes from it.
func TestBatchForms(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	var b Batch
	for n := range 4000 {
		s := draw(rng, 2000)
		i := b.Add(s.ns, []byte(s.s))
		author, _ := authorOf(s)
		_, packed := dict.SplitURI([]byte(s.s))
		packed = packed && s.ns == dict.URI
		id := dict.ID(rng.Uint64N(1<<40) + 1)
		if n%3 == 0 {
			id = dict.ID(rng.Uint64() | 1<<63)
		}
		if packed {
			a := b.Add(dict.DID, []byte(author.s))
			b.items[a].id, b.items[a].state = id, stored
		}
		it := &b.items[i]
		form := b.appendForm([]byte{'x'}, it)[1:]
		var back []byte
		switch {
		case s.ns == dict.DID:
			if want := dict.PackDID(nil, []byte(s.s)); !bytes.Equal(form, want) {
				t.Fatalf("%.60s is stored as %x, want %x", s.s, form, want)
			}
			back = dict.AppendDID(nil, form)
		case packed:
			tid, of, collection, isPacked, err := dict.UnpackURI(form)
			if err != nil || !isPacked || of != id {
				t.Fatalf("%.60s is stored as %x: %v, %d, %v", s.s, form, isPacked, of, err)
			}
			back = dict.AppendURI(nil, []byte(author.s), collection, tid)
		default:
			back = dict.UnpackRaw(form)
		}
		if string(back) != s.s {
			t.Fatalf("%.60s comes back as %.60s", s.s, back)
		}
		key, tid, isPacked, err := keyOfForm(s.ns, form)
		if err != nil || key != b.settled(it) || isPacked != packed || packed && tid != it.tid {
			t.Fatalf("%.60s is known as %x by its form, and as %x: %v", s.s, key, b.settled(it), err)
		}
	}
	if _, _, _, err := keyOfForm(dict.URI, make([]byte, 11)[:11]); err != nil {
		t.Errorf("a post without an author: %v", err)
	}
	if _, _, _, err := keyOfForm(dict.URI, slices.Repeat([]byte{0xff}, 14)); err == nil {
		t.Error("a malformed form has a key")
	}
}

// TestCacheKeepsDIDs: URIs, however many, do not replace DIDs in the cache. They get half of it.
func TestCacheKeepsDIDs(t *testing.T) {
	const budget, bytesPerEntry = 1 << 16, 24
	c := newCache(budget)
	var dids Batch
	next := dict.ID(1)
	create := func(b *Batch) {
		for i := range b.items {
			if it := &b.items[i]; it.state == unresolved {
				it.id, it.state = next, created
				next++
			}
		}
		c.remember(b)
	}
	for n := range 100 {
		dids.Add(dict.DID, fmt.Appendf(nil, "did:plc:a%d", n))
	}
	create(&dids)
	var uris Batch
	for n := range budget / bytesPerEntry * 10 {
		uris.Add(dict.URI, fmt.Appendf(nil, "at://a%d.example.com/app.bsky.feed.post/%d", n%100, n))
	}
	create(&uris)
	var again Batch
	for n := range 100 {
		again.Add(dict.DID, fmt.Appendf(nil, "did:plc:a%d", n))
	}
	c.resolve(&again, dict.DID)
	for n := range 100 {
		if again.ID(n) != dids.ID(n) {
			t.Fatalf("DID %d is %d in the cache, and %d", n, again.ID(n), dids.ID(n))
		}
	}
	hits := 0
	for i := range uris.items {
		if _, ok := c.tables[dict.URI].Get(uris.settled(&uris.items[i])); ok {
			hits++
		}
	}
	if most := budget / bytesPerEntry / 4; hits > most || hits < most/2 { // a generation, which fills while the other is read
		t.Errorf("%d URIs are in the cache, which has room for %d", hits, most)
	}
}
