package query

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// setAnswer is an answer of query.
type setAnswer struct {
	Type    string   `json:"type"`
	Total   uint64   `json:"total"`
	Members []string `json:"members,omitzero"`
	Records []string `json:"records,omitzero"`
	Cursor  string   `json:"cursor,omitempty"`
	caveats
}

func (a *setAnswer) table() *table {
	t := &table{columns: []column{{name: "member"}}, rows: make([][]any, len(a.Members)), cursor: a.Cursor, total: a.Total}
	if a.Members == nil { // only the number was asked for
		return &table{columns: []column{{"total", true}}, rows: [][]any{{a.Total}}, total: a.Total}
	}
	for i, m := range a.Members {
		t.rows[i] = []any{m}
	}
	if a.Records != nil {
		t.add(column{name: "record"}, 1, func(i int) any { return a.Records[i] })
	}
	return t
}

func query(ctx context.Context, q *call) (any, error) {
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	limit, countOnly, withRecords := q.Integer("limit", 1, 1000, 100), q.Boolean("count"), q.Boolean("records")
	if withRecords && e.Root.Kind.IsLabel() {
		return nil, xrpc.Invalid("set: records=true does not work with labeled(…), because a label is not a record")
	}
	if withRecords && !e.IsLeaf() {
		return nil, xrpc.Invalid("set: records=true takes a single set, such as likers(at://…), and no operators")
	}
	at, err := q.place(e, byID)
	if err != nil {
		return nil, err
	}
	out := setAnswer{Type: e.Type().String()}
	err = q.evaluate(ctx, at.e, evidence.Of(&at.e.Root), &out.caveats, func(v *algebra.Evaluation) error {
		set, total, err := v.Result()
		if out.Total = total; err != nil || countOnly {
			return err
		}
		ids, members, cursor, err := q.page(v, set, at, limit)
		out.Members, out.Cursor = members, cursor
		if err != nil || !withRecords {
			return err
		}
		records, err := v.EdgeRecords(&v.Expr.Root, ids)
		out.Records = make([]string, len(ids))
		for i, id := range ids {
			out.Records[i] = memberURI(v, members[i], records[id])
		}
		return err
	})
	return &out, err
}

// A place is where a page of a set begins.
type place struct {
	e     *language.Expr // as of the first page
	order string
	after algebra.Place
}

// place reads the parameter cursor.
func (q *call) place(e *language.Expr, order string) (p place, err error) {
	p = place{e: e, order: order}
	if q.Values.Has("cursor") {
		p.e, p.after, err = q.Cursors.OpenList(e, order, q.Values.Get("cursor"))
	}
	return p, err
}

// page returns the page of a set at a place, and the cursor of the next one.
func (q *call) page(v *algebra.Evaluation, set sets.Set, at place, limit int) (ids []uint64, members []string, cursor string, err error) {
	ids, members, last, err := v.Page(set, at.after.ID, limit)
	if last != dict.None {
		cursor = q.Cursors.SealList(at.e, at.order, algebra.Place{ID: last})
	}
	return ids, members, cursor, err
}

// maxMembers is the largest number of members in one call of contains.
const maxMembers = 100

func contains(ctx context.Context, q *call) (any, error) {
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	members, err := q.List("member", maxMembers, e.Forms()...)
	if err != nil {
		return nil, err
	}
	type item struct {
		Member    string `json:"member"`
		Contained bool   `json:"contained"`
	}
	out := struct {
		Members []item `json:"members"`
		caveats
	}{Members: make([]item, len(members))}
	err = q.View(ctx, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, q.Work, members...)
		if err != nil {
			return err
		}
		i := 0
		for id := range ask.Ahead(sn, slices.Values(v.IDs[len(e.Strings):]), v.BeginContains) {
			in, err := v.Contains(members[i], id)
			if err != nil {
				return err
			}
			out.Members[i] = item{members[i].S, in}
			i++
		}
		err = q.rests(sn, &out.caveats, func(cl *claim) error { return cl.on(v, evidence.Of(&e.Root)) })
		out.sampled(v.Sampled())
		return err
	})
	return out, err
}

// failedRepos are the repos that were given up for a reason.
type failedRepos struct {
	Reason string `json:"reason"`
	Repos  int64  `json:"repos"`
}

// indexedKind describes a kind of edge in getStats.
type indexedKind struct {
	Name       string `json:"name"`
	Collection string `json:"collection"`
	Path       string `json:"path"`
	Names      string `json:"names"`
	Forward    string `json:"forward,omitempty"`
	Reverse    string `json:"reverse,omitempty"`
	Records    string `json:"records,omitempty"`
}

// readLabeler is a labeler in getStats.
type readLabeler struct {
	DID     string `json:"did"`
	Cursor  int64  `json:"cursor"`
	Current bool   `json:"current"`
	Reason  string `json:"reason,omitempty"` // why its labels may be incomplete
}

// sourceName names a source to clients: the path of a recording on this machine is nobody's business.
func sourceName(source string) string {
	if filepath.IsAbs(source) {
		return "file"
	}
	return source
}

// statsEvidence is what is known of the network as a whole, in getStats.
type statsEvidence struct {
	Since    string            `json:"since,omitempty"`  // since when the stream has had no hole
	Roster   *graph.Roster     `json:"roster,omitempty"` // the list of all accounts
	Around   *graph.Around     `json:"around,omitempty"` // the part of the network that is indexed
	Reason   string            `json:"reason,omitempty"` // why answers that depend on everybody are incomplete
	Evidence *evidence.Missing `json:"missing,omitempty"`

	Unwritten int `json:"unwritten,omitempty"` // percent of the network
}

func evidenceOf(x *evidence.Index) (e statsEvidence) {
	e.Since, e.Unwritten = stamp(x.Holes.Unbroken), x.Unwritten.Percent()
	if r := x.Past.Roster; r.Known() {
		e.Roster = &r
	}
	if a := x.Past.Around; a.Hops > 0 {
		e.Around = &a
	}
	if e.Evidence = x.All(); e.Evidence != nil {
		e.Reason = e.Evidence.Reason
	}
	return e
}

func getStats(ctx context.Context, q *call) (any, error) {
	o := &q.server.o
	var counts ask.Counts
	var cursors []graph.Cursor
	var labelers map[string]graph.Labeler
	var cl *claim
	err := q.View(ctx, func(sn *ask.View) (err error) {
		cl = q.claim(sn)
		if counts, err = sn.Counts(); err != nil {
			return err
		}
		if labelers, err = sn.Labelers(); err != nil {
			return err
		}
		cursors, err = sn.Cursors()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := struct {
		Version    string        `json:"version"`
		Engine     string        `json:"engine"`
		Relay      string        `json:"relay"`
		State      string        `json:"state"`
		Cursor     *int64        `json:"cursor,omitempty"`
		LagSeconds *int64        `json:"lagSeconds,omitempty"` // lexicons know no fractions
		Waiting    *int64        `json:"waiting,omitempty"`
		Failed     []failedRepos `json:"failed,omitempty"`
		Audited    *Audits       `json:"audited,omitempty"`
		ask.Counts
		statsEvidence
		Kinds    []indexedKind `json:"kinds"`
		Labelers []readLabeler `json:"labelers,omitempty"`
	}{Version: o.Version, Engine: q.Store.Engine(), Relay: o.Relay, State: "off", Counts: counts, statsEvidence: evidenceOf(&cl.index)}
	for i := range q.Words.Table.All {
		k := &q.Words.Table.All[i]
		out.Kinds = append(out.Kinds, indexedKind{k.Name, k.Collection, k.To.Path(), k.To.Form.Noun(), k.Forward, k.Reverse, k.Records})
		if _, ok := counts.Records[k.Name]; !ok {
			counts.Records[k.Name] = 0
		}
	}
	for _, did := range slices.Sorted(maps.Keys(labelers)) {
		l, reason := labelers[did], ""
		if m := evidence.Labeler(l, time.Now()); m != nil {
			reason = m.Reason
		}
		out.Labelers = append(out.Labelers, readLabeler{did, l.Seq, l.Current && reason == "", reason})
	}
	var newest time.Time
	for _, c := range cursors {
		if c.Source == o.Relay || o.Relay == "" && c.IsStream() && !c.Time.Before(newest) {
			newest = c.Time
			out.Relay = c.Source
			if c.Seq > 0 { // at 0, no event has been applied
				out.Cursor = new(int64(c.Seq))
			}
		}
	}
	out.Relay = sourceName(out.Relay)
	if o.Queue != nil {
		waiting, failed := o.Queue()
		out.Waiting = &waiting
		for _, reason := range slices.Sorted(maps.Keys(failed)) {
			out.Failed = append(out.Failed, failedRepos{reason, failed[reason]})
		}
	}
	if o.Audits != nil {
		out.Audited = new(o.Audits())
	}
	if o.Status != nil {
		st := o.Status()
		if out.State = st.State; st.HasLag {
			out.LagSeconds = new(int64(st.Lag / time.Second))
		}
	}
	return out, nil
}
