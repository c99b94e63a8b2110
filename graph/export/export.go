package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/runs"
)

// An export holds a store in a form that does not depend on its engine, nor on
// its ids: one JSON object a line, of the type line. Its lines are, in order,
//
//	{"export":2,"kinds":[…],"configured":[…]}      the version of the form, and what the
//	                                               store has been indexing; where it does
//	                                               not say, the first four kinds. Those
//	                                               that are not built in stand there as in
//	                                               a file of kinds (graph/kinds, file.go)
//	{"cursor":{…}}                                 for each source
//	{"dead":{…}}, {"gap":{…}}                      the dead letters and gaps
//	{"account":{…}}                                for each account
//	{"did":…,"kind":"like","records":[[rkey,subject],…]}
//	                                               its records, maybe in several lines
//	{"end":{"accounts":n,"records":n,"sha256":s}}  or else the export is not whole
//
// The sum is that of all bytes before the last line, in hexadecimal. Version 1 had
// none.
//
// A record that names no subject has "" in its place. Of accounts that are being
// erased, the records are left out.
type line struct {
	Export  int                `json:"export,omitempty"`
	Kinds   []string           `json:"kinds,omitempty"` // of the first line
	More    []string           `json:"configured,omitempty"`
	Cursor  *exportCursor      `json:"cursor,omitempty"`
	Dead    *format.DeadLetter `json:"dead,omitempty"`
	Gap     *format.Gap        `json:"gap,omitempty"`
	Account *exportAccount     `json:"account,omitempty"`
	DID     string             `json:"did,omitempty"`
	Kind    string             `json:"kind,omitempty"`
	Records [][2]string        `json:"records,omitempty"`
	End     *Counts            `json:"end,omitempty"`
}

// exportVersion is that of the form.
const exportVersion = 2

// Counts say how much an export holds.
type Counts struct {
	Accounts int64 `json:"accounts"`
	Records  int64 `json:"records"`
	// SHA256 is the sum of the export's bytes before its last line, in hexadecimal.
	SHA256 string `json:"sha256,omitempty"`
}

type exportCursor struct {
	Source string     `json:"source"`
	Seq    format.Seq `json:"seq"`
	Time   time.Time  `json:"time"`
	Future bool       `json:"future,omitempty"`
}

// exportAccount is a repoState. A Source that is "" is one without a cursor.
type exportAccount struct {
	DID            string     `json:"did"`
	Rev            string     `json:"rev,omitempty"`
	Root           string     `json:"root,omitempty"` // the first 8 bytes of the root's digest
	Top            string     `json:"top,omitempty"`
	Hidden         bool       `json:"hidden,omitempty"`
	Partial        bool       `json:"partial,omitempty"`
	Desynchronized bool       `json:"desynchronized,omitempty"`
	NoRoot         bool       `json:"noRoot,omitempty"` // the rev is that of an archive's row
	Last           exportSeq  `json:"last"`
	LastAccount    *exportSeq `json:"lastAccount,omitempty"`
	LastDeletion   *exportSeq `json:"lastDeletion,omitempty"`
}

type exportSeq struct {
	Source string     `json:"source,omitempty"`
	Seq    format.Seq `json:"seq,omitempty"`
}

// linesAtOnce is how many accounts, or records, are gathered before their
// strings are read.
const linesAtOnce = 2000

// Write writes the store to w. It fails if the store is written to while it is
// read and the engine does not keep a state for so long.
func Write(ctx context.Context, store kv.Store, w io.Writer, progress func(records int64)) (Counts, error) {
	sum := sha256.New()
	x := &exporter{out: bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20), progress: progress}
	x.json = json.NewEncoder(x.out)
	x.json.SetEscapeHTML(false)
	var before, after string
	crossed, err := store.ViewAcross(ctx, func(r kv.Reader) (err error) {
		if before, err = read.WriteState(r); err != nil {
			return err
		}
		if err = x.run(r); err != nil {
			return err
		}
		after, err = read.WriteState(r)
		return err
	})
	if err != nil {
		return x.counts, err
	}
	if crossed > 0 && after != before {
		return x.counts, errors.New("the store was written to while it was exported, which took longer than the engine keeps a state: stop the writers and export again")
	}
	if err := x.out.Flush(); err != nil {
		return x.counts, err //nolint:wrapcheck // it is that of the writer
	}
	x.counts.SHA256 = hex.EncodeToString(sum.Sum(nil))
	err = errors.Join(x.json.Encode(line{End: &x.counts}), x.out.Flush())
	return x.counts, err
}

type exporter struct {
	out      *bufio.Writer
	json     *json.Encoder
	progress func(int64)
	r        kv.Reader
	layout   format.Layout
	kinds    *kinds.Table
	sources  map[[2]uint32]string // by partition and number
	erasing  map[dict.ID]bool
	counts   Counts
}

func (x *exporter) run(r kv.Reader) error {
	x.r = r
	h, err := read.Header(r)
	if err != nil {
		return err
	}
	x.layout, x.kinds = format.Layout{Settings: h.Settings}, h.Table
	if err := errors.Join(x.json.Encode(x.first(h.Kinds)), x.cursors(), x.notes()); err != nil {
		return err
	}
	x.erasing = map[dict.ID]bool{}
	err = kv.ScanPrefix(x.r, []byte{format.KeyErase}, func(k, _ []byte) error {
		id, err := format.ParseActorKey(k)
		x.erasing[id] = true
		return err
	})
	if err != nil {
		return err
	}
	if err := x.accounts(); err != nil {
		return err
	}
	for _, k := range x.kinds.All {
		if err := x.records(k); err != nil {
			return fmt.Errorf("exporting %s records: %w", k.Name, err)
		}
	}
	return nil
}

func (x *exporter) cursors() error {
	x.sources = map[[2]uint32]string{}
	all, err := read.Cursors(x.r)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := x.json.Encode(line{Cursor: &exportCursor{c.Source, c.Seq, c.Time.UTC(), c.Future}}); err != nil {
			return err
		}
	}
	return kv.ScanPrefix(x.r, []byte{format.KeyCursor}, func(k, v []byte) error {
		part, source := format.ParseCursorKey(k)
		c, err := format.DecodeCursor(v)
		x.sources[[2]uint32{uint32(part), c.Number}] = source
		return err
	})
}

func (x *exporter) notes() error {
	dead, err := read.DeadLetters(x.r)
	if err != nil {
		return err
	}
	for i := range dead {
		if err := x.json.Encode(line{Dead: &dead[i]}); err != nil {
			return err
		}
	}
	gaps, err := read.Gaps(x.r)
	if err != nil {
		return err
	}
	for i := range gaps {
		if err := x.json.Encode(line{Gap: &gaps[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) accounts() error {
	var ids []dict.ID
	var states []format.RepoState
	flush := func() error {
		err := intern.Strings(x.r, dict.DID, ids, func(i int, did []byte) error {
			x.counts.Accounts++
			return x.json.Encode(line{Account: x.account(ids[i], string(did), &states[i])})
		})
		ids, states = ids[:0], states[:0]
		return err
	}
	err := kv.ScanPrefix(x.r, []byte{format.KeyAccount}, func(k, v []byte) error {
		err := x.layout.EachState(k, v, func(id dict.ID, st format.RepoState) error {
			ids, states = append(ids, id), append(states, st)
			return nil
		})
		if err != nil || len(ids) < linesAtOnce {
			return err
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("exporting the accounts: %w", err)
	}
	return nil
}

func (x *exporter) account(id dict.ID, did string, st *format.RepoState) *exportAccount {
	part := uint32(x.layout.Settings.PartitionOfID(id))
	at := func(number uint32, seq format.Seq) exportSeq {
		return exportSeq{x.sources[[2]uint32{part, number}], seq}
	}
	a := &exportAccount{
		DID: did, Hidden: st.Has(format.FlagHidden), Partial: st.Has(format.FlagPartial), Desynchronized: st.Has(format.FlagDesync), NoRoot: st.Has(format.FlagNoRoot),
		Last: at(st.Source, st.Seq),
	}
	if st.Has(format.FlagHasRev) {
		a.Rev, a.Root = st.Rev.String(), hex.EncodeToString(st.Data[:])
	}
	if st.Top > uint64(st.Rev) {
		a.Top = format.Rev(st.Top).String()
	}
	if st.AccountSource != 0 || st.AccountSeq != 0 {
		s := at(st.AccountSource, st.AccountSeq)
		a.LastAccount = &s
	}
	if st.DeletionSource != 0 || st.DeletionSeq != 0 {
		s := at(st.DeletionSource, st.DeletionSeq)
		a.LastDeletion = &s
	}
	return a
}

// records exports all records of a kind.
func (x *exporter) records(k kinds.Info) error {
	type entry struct {
		actor, subject dict.ID
		rkey           string
	}
	var batch []entry
	flush := func() error {
		var actors, subjects []dict.ID
		for _, e := range batch {
			if len(actors) == 0 || actors[len(actors)-1] != e.actor {
				actors = append(actors, e.actor)
			}
			if e.subject != dict.None {
				subjects = append(subjects, e.subject)
			}
		}
		var dids, names []string
		err := errors.Join(
			intern.Strings(x.r, dict.DID, actors, func(_ int, s []byte) error { dids = append(dids, string(s)); return nil }),
			intern.Strings(x.r, k.To.Is, subjects, func(_ int, s []byte) error { names = append(names, string(s)); return nil }))
		if err != nil {
			return err
		}
		for group := range runs.Of(batch, func(a, b entry) bool { return a.actor == b.actor }) {
			l := line{DID: dids[0], Kind: k.Name, Records: make([][2]string, len(group))}
			dids = dids[1:]
			for i, e := range group {
				if l.Records[i][0] = e.rkey; e.subject != dict.None {
					l.Records[i][1], names = names[0], names[1:]
				}
			}
			if err := x.json.Encode(l); err != nil {
				return err
			}
		}
		x.counts.Records += int64(len(batch))
		if x.progress != nil {
			x.progress(x.counts.Records)
		}
		batch = batch[:0]
		return nil
	}
	var failed error
	var rkey []byte
	err := read.RecordsUnder(x.r, []byte{format.KeyRecord, byte(k.Kind)}, func(actor dict.ID, r *format.Record) bool {
		if x.erasing[actor] {
			return true
		}
		rkey = r.Path.AppendRkey(rkey[:0])
		batch = append(batch, entry{actor, r.Subject, string(bytes.Clone(rkey))})
		if len(batch) >= linesAtOnce {
			failed = flush()
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return flush()
}

// first is the first line of an export of these kinds.
func (x *exporter) first(of []kinds.Kind) line {
	l := line{Export: exportVersion}
	for _, k := range of {
		l.Kinds = append(l.Kinds, x.kinds.Info(k).Name)
	}
	for _, k := range x.kinds.Configured() {
		l.More = append(l.More, k.Line())
	}
	return l
}
