package export

import (
	"encoding/json"
	"maps"
	"slices"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// pending is an account whose lines need strings that are not read yet.
type pending struct {
	id      dict.ID
	state   format.RepoState
	queued  *format.Resync
	touched []format.Touched
	records []pendingRecord // kind by kind
}

type pendingRecord struct {
	kind    kinds.Kind
	rkey    string
	subject dict.ID
}

// all exports the accounts and their records, in the order of their DIDs in the dictionary,
// which depends on the strings only and so is the same in every store.
func (x *exporter) all() error {
	var ids []dict.ID
	err := intern.EachString(x.r, dict.DID, func(_ []byte, id dict.ID) error {
		if ids = append(ids, id); len(ids) < accountsAtOnce {
			return nil
		}
		err := x.gather(ids)
		ids = ids[:0]
		return err
	})
	if err == nil {
		err = x.gather(ids)
	}
	if err != nil {
		return err
	}
	return x.flush()
}

// gather reads the states and records of the DIDs that are known accounts.
func (x *exporter) gather(ids []dict.ID) error {
	var accounts []pending
	for id := range kv.AheadOf(x.r, slices.Values(ids), func(p kv.Prefetcher, id dict.ID) { p.PrefetchGet(x.layout.AccountKey(nil, id)) }) {
		st, known, err := read.FindAccount(x.r, x.layout, id)
		if err != nil {
			return err
		}
		if !known {
			continue // a record names the DID, but it has no events
		}
		p := pending{id: id, state: st}
		if err := x.past(&p); err != nil {
			return err
		}
		accounts = append(accounts, p)
	}
	// A step reads the records of an account that have a kind.
	all := len(x.kinds.All)
	steps := func(yield func(int) bool) {
		for n := 0; n < len(accounts)*all && yield(n); n++ {
		}
	}
	step := func(n int) (p *pending, k kinds.Kind, reads bool) {
		p = &accounts[n/all]
		return p, x.kinds.All[n%all].Kind, !p.state.Has(format.FlagErasing) && p.state.Has(format.FlagRecords)
	}
	for n := range kv.AheadOf(x.r, steps, func(ahead kv.Prefetcher, n int) {
		p, k, reads := step(n)
		if reads {
			read.Begin(ahead, k, p.id)
		}
	}) {
		p, k, reads := step(n)
		if reads {
			if err := x.records(p, k); err != nil {
				return err
			}
		}
		if n%all < all-1 {
			continue
		}
		x.pending = append(x.pending, *p)
		if x.gathered += len(p.records); x.gathered >= recordsAtOnce {
			if err := x.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// past reads an account's row in the resync queue, and the stream's changes to it since.
func (x *exporter) past(p *pending) (err error) {
	if p.state.Has(format.FlagResync) {
		if p.queued, err = read.JSON[format.Resync](x.r, format.ResyncKey(p.id)); err != nil {
			return err
		}
	}
	if !p.state.Has(format.FlagResync) && !p.state.Has(format.FlagPartial) {
		return nil
	}
	return kv.ScanPrefix(x.r, format.AppendTouchedKey(nil, p.id, 0, nil), func(key, v []byte) error {
		t, err := format.DecodeTouched(slices.Clone(key), v)
		if err == nil {
			p.touched = append(p.touched, t)
		}
		return err
	})
}

// records reads the records of an account that have a kind.
func (x *exporter) records(p *pending, k kinds.Kind) error {
	var rkey []byte
	return read.Records(x.r, k, p.id, func(r *format.Record) bool {
		rkey = r.Path.AppendRkey(rkey[:0])
		p.records = append(p.records, pendingRecord{k, string(rkey), r.Subject})
		return true
	})
}

// flush writes the lines of the gathered accounts.
func (x *exporter) flush() error {
	names := map[dict.Namespace]map[dict.ID]string{dict.DID: {}, dict.URI: {}}
	for i := range x.pending {
		p := &x.pending[i]
		names[dict.DID][p.id] = ""
		for _, r := range p.records {
			if r.subject != dict.None {
				names[x.kinds.Info(r.kind).To.Is()][r.subject] = ""
			}
		}
	}
	for ns, ids := range names { // in the order of the ids, and so of the store
		sorted := slices.Sorted(maps.Keys(ids))
		if err := intern.Strings(x.r, ns, sorted, func(i int, s []byte) error { ids[sorted[i]] = string(s); return nil }); err != nil {
			return err
		}
	}
	for i := range x.pending {
		if err := x.lines(&x.pending[i], names); err != nil {
			return err
		}
	}
	if x.progress != nil {
		x.progress(x.counts.Records)
	}
	clear(x.pending)
	x.pending, x.gathered = x.pending[:0], 0
	return nil
}

// lines writes the lines of an account.
func (x *exporter) lines(p *pending, names map[dict.Namespace]map[dict.ID]string) error {
	did := names[dict.DID][p.id]
	a := x.state(p.id, did, &p.state)
	a.Queued, a.Touched = p.queued, p.touched
	x.counts.Accounts++
	if err := x.json.Encode(line{Account: a}); err != nil {
		return err
	}
	for of := range sets.Runs(p.records, func(x, y pendingRecord) bool { return x.kind == y.kind }) {
		k := x.kinds.Info(of[0].kind)
		for some := range slices.Chunk(of, recordsOfLine) {
			l := line{DID: did, Kind: k.Name}
			for _, r := range some {
				l.Records = append(l.Records, [2]string{r.rkey, names[k.To.Is()][r.subject]}) // "" without a subject
			}
			if err := x.json.Encode(l); err != nil {
				return err
			}
			x.counts.Records += int64(len(some))
		}
	}
	return nil
}

// doubts exports what the store knows to be missing.
func (x *exporter) doubts() error {
	d := graph.Doubts{Floors: map[string]format.Seq{}}
	lacking, err := read.JSON[map[string]format.Lack](x.r, format.KeyLacking)
	if err != nil {
		return err
	}
	if lacking != nil {
		d.Lacking = *lacking
	}
	all := format.AllPartitions(x.layout.Settings.Partitions)
	h, err := read.Holes(x.r, all)
	if err != nil {
		return err
	}
	d.Hole, d.Unbroken, d.Untimed = h.Uncompared(), h.Unbroken, h.Untimed
	for number, seq := range h.Floors {
		if source, known := x.sources[[2]uint32{number >> 24, format.SourceOfNote(number)}]; known {
			d.Floors[source] = max(d.Floors[source], seq)
		}
	}
	b, err := read.Backfill(x.r, all)
	if err != nil {
		return err
	}
	b.Parts, b.SweepAt = 0, 0 // partitions and an id, of this store only
	// ImportDoubts counts all holes as one: if any came since the lists were begun, they were begun before that one.
	b.ListingHoles = map[bool]uint64{true: 1}[len(b.Hosts) > 0 && h.Noted <= b.ListingHoles && !h.Unbroken.IsZero()]
	d.Backfill = b
	if v, err := json.Marshal(d); err != nil || string(v) == `{"backfill":{}}` {
		return err
	}
	return x.json.Encode(line{Doubts: &d})
}
