package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/intern/dict"
)

func TestBrokenDictionary(t *testing.T) {
	lease := func(b *bench) (key string, l dict.Lease) {
		key = b.first(dict.KeyLease, func(k string, v []byte) (ok bool) {
			var err error
			l, err = dict.DecodeLease([]byte(k), v)
			must(b.t, err)
			return true
		})
		return key, l
	}
	testBroken(t, map[string]breakage{
		"a row of an unknown namespace": func(b *bench) string {
			b.rows["i\x07abc"] = dict.AppendID(nil, 5)
			return "dictionary row 6907616263 → 0000000005 is malformed"
		},
		"an id that is too long": func(b *bench) string {
			b.rows[form(alice)] = append(slices.Clone(b.rows[form(alice)]), 0)
			return fmt.Sprintf("dictionary row %x", form(alice))
		},
		"the id of another string": func(b *bench) string {
			id := b.id(zoe)
			b.rows[form(alice)] = dict.AppendID(nil, id)
			return fmt.Sprintf("did %x has id %d, which does not stand for it", alice, id)
		},
		"an id without a string": func(b *bench) string {
			b.rows[form("did:web:new.com")] = dict.AppendID(nil, b.free())
			return fmt.Sprintf("has id %d, which does not stand for it", b.free())
		},
		"a string without an id": func(b *bench) string {
			id := b.id(alice)
			delete(b.rows, form(alice))
			return fmt.Sprintf("did %x does not have the id %d, which stands for it", alice, id)
		},
		"an invalid DID": func(b *bench) string {
			b.name(dict.DID, b.free(), []byte("nodid"))
			return `dictionary: "nodid" is not valid in namespace did`
		},
		"an unpacked DID": func(b *bench) string {
			did := strings.Replace(plc, "2", "3", 1)
			b.name(dict.DID, b.free(), []byte(did))
			return fmt.Sprintf("dictionary: %q is stored as %x; expected %x", did, did, dict.PackDID(nil, []byte(did)))
		},
		"a malformed URI": func(b *bench) string {
			uri := append(dict.AppendID(make([]byte, 8), b.id(alice)), 200)
			b.name(dict.URI, 1<<30, uri)
			return fmt.Sprintf("malformed dictionary row: %x", uri)
		},
		"a URI of an unknown author": func(b *bench) string {
			uri := dict.AppendPackedURI(nil, postTID, b.free(), 0)
			b.name(dict.URI, 1<<30, uri)
			return fmt.Sprintf("dictionary: the author %d of URI %x has no string", b.free(), uri)
		},
		"an unpacked URI of an unknown author": func(b *bench) string {
			b.name(dict.URI, 1<<30, []byte("at://did:web:new.com/app.bsky.feed.post/self"))
			return `dictionary: the author of URI "at://did:web:new.com/app.bsky.feed.post/self" has no id`
		},
		"an invalid URI": func(b *bench) string {
			b.name(dict.URI, 1<<30, []byte("nouri"))
			return `dictionary: "nouri" is not valid in namespace uri`
		},
		"an unpacked URI": func(b *bench) string {
			uri := strings.Replace(post, plc, alice, 1)
			b.name(dict.URI, 1<<30, []byte(uri))
			return fmt.Sprintf("dictionary: %q is stored as %x; expected", uri, uri)
		},
		"a URI in the longer packed form": func(b *bench) string {
			form := append(dict.AppendID(make([]byte, 8), b.id(alice)), 0)
			b.name(dict.URI, 1<<30, form)
			return fmt.Sprintf("is stored as %x; expected %x", form, dict.AppendPackedURI(nil, 0, b.id(alice), 0))
		},
		"a DID in another partition": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			did := []byte("did:web:other.example.com")
			for b.Settings.PartitionOf(did) == b.Settings.PartitionOfID(b.free()) {
				did = append(did, 'm')
			}
			b.name(dict.DID, b.free(), did)
			return fmt.Sprintf("dictionary: DID %x is in partition %d, its id %d in %d", did,
				b.Settings.PartitionOf(did), b.free(), b.Settings.PartitionOfID(b.free()))
		},
		"a group with an unaligned id": func(b *bench) string {
			key := string(dict.AppendID([]byte{dict.KeyString, 1}, 1<<36|1))
			b.rows[key] = nil
			return fmt.Sprintf("dictionary row %x is malformed", key)
		},
		"a malformed group": func(b *bench) string {
			key := dict.AppendGroupKey(nil, dict.DID, b.free())
			b.rows[string(key)] = []byte{2 << dict.GroupBits}
			return fmt.Sprintf("dictionary row %x: %v", key, dict.ErrGroup)
		},
		"a group with duplicate entries": func(b *bench) string {
			key := dict.AppendGroupKey(nil, dict.DID, b.id(plc))
			v := b.rows[string(key)]
			b.rows[string(key)] = append(slices.Clone(v), v...)
			return fmt.Sprintf("dictionary row %x is %x%x; expected %x", key, v, v, v)
		},
		"a missing long string": func(b *bench) string {
			id := b.id(long)
			delete(b.rows, string(dict.AppendOwnKey(nil, dict.DID, id)))
			return fmt.Sprintf("has id %d, which does not stand for it", id)
		},
		"a group without the entry of a long string": func(b *bench) string {
			id := b.id(long)
			var entries []dict.Entry
			key := string(dict.AppendGroupKey(nil, dict.DID, id))
			must(b.t, dict.EachEntry(b.rows[key], func(e *dict.Entry) bool { entries = append(entries, *e); return true }))
			entries = slices.DeleteFunc(entries, func(e dict.Entry) bool { return e.Kind == dict.KindOwn })
			b.rows[key] = nil
			var w dict.GroupWriter
			for i := range entries {
				b.rows[key] = w.Append(b.rows[key], &entries[i])
			}
			return fmt.Sprintf("dictionary: the group of id %d does not say that its string has a row of its own", id)
		},
		"a changed long string": func(b *bench) string {
			id := b.id(long)
			b.rows[string(dict.AppendOwnKey(nil, dict.DID, id))] = []byte(long + "m")
			return fmt.Sprintf("has id %d, which does not stand for it", id)
		},
		"a missing lease": func(b *bench) string {
			key, l := lease(b)
			delete(b.rows, key)
			return fmt.Sprintf("ids (%s) are in block %d of shard %d, which was never leased", l.Namespace, l.Block, l.Shard)
		},
		"a counter that lags behind": func(b *bench) string {
			_, l := lease(b)
			b.rows[string(dict.AppendNextKey(nil, l.Namespace, l.Shard))] = make([]byte, 8)
			return fmt.Sprintf("block %d of shard %d (%s) is leased, but the shard's counter is 0000000000000000", l.Block, l.Shard, l.Namespace)
		},
	})
}
