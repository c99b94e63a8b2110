package export

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A line is one line of an export: a JSON object. An export does not depend on the engine or
// the ids of its store, and the same graph gives the same bytes, whatever its history. Its
// lines are, in order,
//
//	{"export":4,"kinds":[…],"configured":[…]}      the version of the export format, and
//	                                               the indexed kinds. Configured kinds are
//	                                               lines of a file of kinds (graph/kinds, file.go)
//	{"cursor":{…}}                                 for each source, by name
//	{"dead":{…}}, {"gap":{…}}                      the dead letters and gaps
//	{"doubts":{…}}                                 what the store knows to be missing
//	{"account":{…}}                                for each account, in the order of the
//	                                               dictionary; after each
//	{"did":…,"kind":"like","records":[[rkey,subject],…]}
//	                                               its records, kind by kind, 1,000 a line
//	{"end":{"accounts":n,"records":n,"sha256":s}}  a truncated export does not have it
//
// The sum covers all bytes before the last line, in hexadecimal.
//
// A record without a subject has "" instead. An export omits the records of accounts that are
// being erased.
type line struct {
	Export  int                `json:"export,omitempty"`
	Kinds   []string           `json:"kinds,omitempty"` // in the first line
	More    []string           `json:"configured,omitempty"`
	Cursor  *format.Cursor     `json:"cursor,omitempty"`
	Dead    *format.DeadLetter `json:"dead,omitempty"`
	Gap     *format.Gap        `json:"gap,omitempty"`
	Doubts  *graph.Doubts      `json:"doubts,omitempty"`
	Account *exportAccount     `json:"account,omitempty"`
	DID     string             `json:"did,omitempty"`
	Kind    string             `json:"kind,omitempty"`
	Records [][2]string        `json:"records,omitempty"`
	End     *Counts            `json:"end,omitempty"`
}

// exportVersion is the version of the export format, and the only one that is read.
const exportVersion = 4

// Counts are the numbers of accounts and records in an export, and its sum.
type Counts struct {
	Accounts int64 `json:"accounts"` // number of accounts
	Records  int64 `json:"records"`  // number of records
	// SHA256 is the sum of the export's bytes before its last line, in hexadecimal.
	SHA256 string `json:"sha256,omitempty"`
}

// exportAccount is a format.RepoState. A source without a cursor is "".
type exportAccount struct {
	DID            string    `json:"did"`
	Rev            string    `json:"rev,omitempty"`
	Root           string    `json:"root,omitempty"` // the first 8 bytes of the root's digest
	Top            string    `json:"top,omitempty"`
	Hidden         bool      `json:"hidden,omitempty"`
	Partial        bool      `json:"partial,omitempty"`
	Desynchronized bool      `json:"desynchronized,omitempty"`
	NoRoot         bool      `json:"noRoot,omitempty"` // the rev is from a row of an archive
	Behind         bool      `json:"behind,omitempty"` // a newer state was announced, but not applied
	Returned       bool      `json:"returned,omitempty"`
	Last           exportSeq `json:"last"`
	LastAccount    exportSeq `json:"lastAccount,omitzero"`
	LastDeletion   exportSeq `json:"lastDeletion,omitzero"`
	// Queued is its row in the resync queue.
	Queued *format.Resync `json:"queued,omitempty"`
	// Touched has the stream's changes that a snapshot or an archive must not undo.
	Touched []format.Touched `json:"touched,omitempty"`
}

type exportSeq struct {
	Source string     `json:"source,omitempty"`
	Seq    format.Seq `json:"seq,omitempty"`
}

const (
	accountsAtOnce = 2000   // accounts to gather before their strings are read
	recordsAtOnce  = 20_000 // records to gather before their strings are read
	recordsOfLine  = 1000   // the most records in a line
)

// Write writes the store to w. It fails if it takes longer than the engine keeps a snapshot,
// and the store changes meanwhile.
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
		return x.counts, errors.New("the store changed during the export, which took longer than the engine keeps a snapshot: stop the writers and export again")
	}
	if err := x.out.Flush(); err != nil {
		return x.counts, err
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
	pending  []pending            // gathered accounts
	gathered int                  // their records
	counts   Counts
}

func (x *exporter) run(r kv.Reader) error {
	x.r = r
	h, err := read.Header(r)
	if err != nil {
		return err
	}
	x.layout, x.kinds = format.Layout{Settings: h.Settings}, h.Table
	if err := errors.Join(x.json.Encode(x.first(h.Kinds)), x.cursors(), x.notes(), x.doubts()); err != nil {
		return err
	}
	if err := x.all(); err != nil {
		return fmt.Errorf("exporting the accounts: %w", err)
	}
	return nil
}

func (x *exporter) cursors() error {
	x.sources = map[[2]uint32]string{}
	all, err := read.Cursors(x.r)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(x, y format.Cursor) int { return cmp.Compare(x.Source, y.Source) })
	for _, c := range all {
		c.Time = c.Time.UTC()
		if err := x.json.Encode(line{Cursor: &c}); err != nil {
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
	// Their keys begin with numbers of sources, which only this store has.
	slices.SortStableFunc(dead, func(x, y format.DeadLetter) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Path, y.Path))
	})
	for i := range dead {
		if err := x.json.Encode(line{Dead: &dead[i]}); err != nil {
			return err
		}
	}
	gaps, err := read.Gaps(x.r)
	if err != nil {
		return err
	}
	slices.SortStableFunc(gaps, func(x, y format.Gap) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.After, y.After), cmp.Compare(x.Place(), y.Place()))
	})
	for i := range gaps {
		if err := x.json.Encode(line{Gap: &gaps[i]}); err != nil {
			return err
		}
	}
	return nil
}

// state returns the line of an account's state.
func (x *exporter) state(id dict.ID, did string, st *format.RepoState) *exportAccount {
	part := uint32(x.layout.Settings.PartitionOfID(id))
	at := func(number uint32, seq format.Seq) exportSeq {
		return exportSeq{x.sources[[2]uint32{part, number}], seq}
	}
	a := &exportAccount{
		DID: did, Hidden: st.Has(format.FlagHidden), Partial: st.Has(format.FlagPartial), Desynchronized: st.Has(format.FlagDesync), NoRoot: st.Has(format.FlagNoRoot), Behind: st.Has(format.FlagBehind),
		Returned: st.Has(format.FlagReturned), Last: at(st.Source, st.Seq), LastAccount: at(st.AccountSource, st.AccountSeq), LastDeletion: at(st.DeletionSource, st.DeletionSeq),
	}
	if st.Has(format.FlagHasRev) {
		a.Rev, a.Root = st.Rev.String(), hex.EncodeToString(st.Data[:])
	}
	if st.Top > uint64(st.Rev) {
		a.Top = format.Rev(st.Top).String()
	}
	return a
}

// first returns the first line of an export of these kinds.
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
