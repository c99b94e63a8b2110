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
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// An export holds a store in a form that does not depend on its engine, nor on
// its ids: one JSON object a line, of the type line. The same graph gives the same bytes,
// whatever its history. Its lines are, in order,
//
//	{"export":3,"kinds":[…],"configured":[…]}      the version of the form, and what the
//	                                               store has been indexing; where it does
//	                                               not say, the first four kinds. Those
//	                                               that are not built in stand there as in
//	                                               a file of kinds (graph/kinds, file.go)
//	{"cursor":{…}}                                 for each source, by name
//	{"dead":{…}}, {"gap":{…}}                      the dead letters and gaps
//	{"doubts":{…}}                                 what the store knows that it lacks
//	{"account":{…}}                                for each account, in the order of the
//	                                               dictionary, and after it
//	{"did":…,"kind":"like","records":[[rkey,subject],…]}
//	                                               its records, kind by kind, 1,000 a line
//	{"end":{"accounts":n,"records":n,"sha256":s}}  or else the export is not whole
//
// The sum is that of all bytes before the last line, in hexadecimal. Version 1 had
// none. Version 2 had no doubts, all accounts before all records, and both in the order of
// the store's ids.
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
	Doubts  *doubts            `json:"doubts,omitempty"`
	Account *exportAccount     `json:"account,omitempty"`
	DID     string             `json:"did,omitempty"`
	Kind    string             `json:"kind,omitempty"`
	Records [][2]string        `json:"records,omitempty"`
	End     *Counts            `json:"end,omitempty"`
}

// exportVersion is that of the form.
const exportVersion = 3

// doubts are what a store knows that it lacks, of more than one account.
type doubts struct {
	// Lacking are the kinds that were added when there were accounts.
	Lacking map[string]format.Lack `json:"lacking,omitempty"`
	// Hole says that the stream had a hole after which the repos have not been compared, and
	// Floors what the last event before the newest hole was, by source.
	Hole   bool                  `json:"hole,omitempty"`
	Floors map[string]format.Seq `json:"floors,omitempty"`
	// Backfill says which past is being fetched.
	Backfill format.Backfill `json:"backfill"`
}

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
	Behind         bool       `json:"behind,omitempty"` // a newer state was announced, and not applied
	Last           exportSeq  `json:"last"`
	LastAccount    *exportSeq `json:"lastAccount,omitempty"`
	LastDeletion   *exportSeq `json:"lastDeletion,omitempty"`
	// Queued is its row in the queue of repos to fetch.
	Queued *format.Resync `json:"queued,omitempty"`
	// Touched is what the stream has changed that a snapshot, or an archive, must not undo:
	// paths and their revs; and Commits, how the stream's commits follow each other.
	Touched [][3]string    `json:"touched,omitempty"` // kind, record key, rev
	Commits []exportCommit `json:"commits,omitempty"`
}

// exportCommit is a format.TouchedCommit.
type exportCommit struct {
	Rev    string `json:"rev"`
	Since  string `json:"since,omitempty"`
	Data   string `json:"data"`
	Prev   string `json:"prev,omitempty"`
	Broken bool   `json:"broken,omitempty"`
}

type exportSeq struct {
	Source string     `json:"source,omitempty"`
	Seq    format.Seq `json:"seq,omitempty"`
}

// How many accounts, and records, are gathered before their strings are read; and how many
// records a line has at most.
const (
	accountsAtOnce = 2000
	recordsAtOnce  = 20_000
	recordsOfLine  = 1000
)

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
	pending  []pending            // accounts that are gathered
	gathered int                  // records of theirs
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
	// Their keys begin with the numbers of the sources, which are this store's.
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

// state returns what is exported of an account's state.
func (x *exporter) state(id dict.ID, did string, st *format.RepoState) *exportAccount {
	part := uint32(x.layout.Settings.PartitionOfID(id))
	at := func(number uint32, seq format.Seq) exportSeq {
		return exportSeq{x.sources[[2]uint32{part, number}], seq}
	}
	a := &exportAccount{
		DID: did, Hidden: st.Has(format.FlagHidden), Partial: st.Has(format.FlagPartial), Desynchronized: st.Has(format.FlagDesync), NoRoot: st.Has(format.FlagNoRoot), Behind: st.Has(format.FlagBehind),
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
