// Package evidence decides whether an answer is proven to be complete. Of says what an expression depends
// on, an Index has what is known of the index as a whole, and the methods of the Index infer what is missing.
// docs/semantics.md#e1 and the rules after it are the inferences.
package evidence

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/query/language"
)

// Missing is what an answer lacks the evidence for. It is an error, so that functions that look for it can return it.
type Missing struct {
	Accounts int64 `json:"accounts"` // whose records may be missing, at least so many
	Roster   int   `json:"roster"`   // lists of accounts: 1 if none was read to its end, else the hosts that could not be listed
	Labelers int   `json:"labelers"` // whose labels may be missing

	Reason string `json:"-"` // one sentence, without a period
}

// Error implements error.
func (m *Missing) Error() string { return m.Reason }

// Add adds what else is missing, which may be nil: of the same accounts, as far as anybody knows, and of another labeler. The first
// reason stays.
func (m *Missing) Add(more *Missing) *Missing {
	if m == nil || more == nil {
		return cmp.Or(m, more)
	}
	return &Missing{max(m.Accounts, more.Accounts), max(m.Roster, more.Roster), m.Labelers + more.Labelers, m.Reason}
}

// An Index is what is known of the index as a whole.
type Index struct {
	ask.Known

	Added   map[kinds.Kind]time.Time // kinds that were added to an index with accounts, and when
	Lacking map[kinds.Kind]time.Time // those for which some accounts have not been queued since
	Source  func(kinds.Kind) string  // names a kind to clients
}

// IndexOf returns what is known of the index as a whole.
func IndexOf(sn *ask.View) Index {
	return Index{Source: func(k kinds.Kind) string { return sn.Kind(k).Source() }, Known: sn.Known(), Added: sn.Added(), Lacking: sn.Lacking()}
}

// since reports whether a window begins at a time or later.
func since(w language.Window, t time.Time) bool { return !w.All() && !time.UnixMicro(w.From).Before(t) }

// heard reports whether a window begins after the stream's newest hole: the index has heard everything that was made in it.
func (x *Index) heard(w language.Window) bool {
	return !x.Holes.Uncompared() && !x.Holes.Untimed && !x.Holes.Unbroken.IsZero() && since(w, x.began())
}

// began returns since when everything is heard: since the newest hole, and in a part of the network since it has its centers.
func (x *Index) began() time.Time {
	if began := x.Past.Around.Since; began.After(x.Holes.Unbroken) {
		return began
	}
	return x.Holes.Unbroken
}

// Kind returns what is missing of a kind, of accounts' own records or of everybody's: its records from before it was added.
func (x *Index) Kind(k kinds.Kind, w language.Window, own bool) *Missing {
	at, lacks := x.Lacking[k]
	hint := "; skein backfill adds older records"
	if !own && x.Past.Around.Hops > 0 { // nobody fetches the repos of others
		at, lacks = x.Added[k]
		hint = " for accounts outside this part of the network"
	}
	if !lacks || since(w, at) {
		return nil
	}
	return &Missing{Accounts: x.Counts.Accounts, Reason: fmt.Sprintf("%s has been indexed only since %s%s", x.Source(k), at.Format(time.RFC3339), hint)}
}

// unheard is the reason after a hole.
const unheard = "some events were lost, and skein has not yet compared all repos with the relay's list, so any account may have changed (operators: see /gaps on the admin address)"

// unwritten returns what is missing of accounts that no living writer indexes.
func (x *Index) unwritten() *Missing {
	percent := x.Unwritten.Percent()
	if percent == 0 {
		return nil
	}
	accounts := (x.Counts.Accounts*int64(percent) + 99) / 100
	return &Missing{Accounts: accounts, Roster: 1, Reason: fmt.Sprintf("%d %% of the network is not indexed at present: a writer of the index has stopped (operators: see getStats)", percent)}
}

// archived reports whether what the index has of accounts may be an archive's, of a time long past.
func (x *Index) archived() bool { return x.Past.Archive != "" || x.Past.Roster.Archived }

// Statuses returns why accounts that the index shows may not be active, or others may be.
func (x *Index) Statuses() *Missing {
	switch {
	case x.Holes.Uncompared():
		return &Missing{Roster: 1, Reason: unheard}
	case x.archived():
		return x.Roster()
	}
	return x.unwritten()
}

// Roster returns why the index may not know every account that it has a writer for.
func (x *Index) Roster() *Missing {
	r, around := &x.Past.Roster, &x.Past.Around
	switch {
	case around.Hops > 0:
		return &Missing{Roster: 1, Reason: fmt.Sprintf("this index has %s, a part of the network, and of all others only what they did to %s since %s", counted(around.Members, "account"), who(around.Centers), x.began().Format(time.RFC3339))}
	case x.Holes.Uncompared():
		return &Missing{Roster: 1, Reason: unheard}
	case x.Past.Archive != "":
		return &Missing{Roster: 1, Reason: "skein is reading the archive from which it will know all accounts, and which of them are active"}
	case !r.Known() && len(x.Past.Hosts) > 0:
		return &Missing{Roster: 1, Reason: "skein is reading the lists of all accounts"}
	case !r.Known() && x.Counts.Accounts == 0:
		return &Missing{Roster: 1, Reason: "nothing is indexed yet"}
	case !r.Known() || r.Source == graph.RosterStream && x.Counts.Partial > 0: // an account is older than the stream
		return &Missing{Roster: 1, Reason: "skein has not read a list of all accounts, so it may not know some (operators: skein backfill)"}
	case r.Unconfirmed:
		return &Missing{Roster: 1, Reason: "skein has read a list of all accounts, and has not yet compared it with the relay's"}
	case len(r.Unlisted) > 0:
		return &Missing{Roster: len(r.Unlisted), Reason: fmt.Sprintf("the accounts of %s may be unknown, because skein could not read all lists: %s (operators: skein backfill)", counted(len(r.Unlisted), "host"), some(r.Unlisted))}
	}
	return nil
}

// All returns what is missing of all records of everybody.
func (x *Index) All() *Missing {
	m := x.Everybody("", kinds.Hidden, language.Window{})
	for k := range x.Lacking {
		m = m.Add(x.Kind(k, language.Window{}, false))
	}
	return m
}

// counted returns a number with a noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// who names the centers of a part.
func who(centers []string) string {
	if len(centers) == 1 {
		return centers[0]
	}
	return fmt.Sprintf("%d named accounts", len(centers))
}

// some returns the first few of a list.
func some(list []string) string {
	const most = 3
	if len(list) > most {
		return strings.Join(list[:most], ", ") + ", …"
	}
	return strings.Join(list, ", ")
}

// Everybody returns what is missing of the records of a kind of all accounts, within a window. of is the subject that they name,
// "" for any: in a part of the network, only records that name a center or its records are there.
func (x *Index) Everybody(of string, k kinds.Kind, w language.Window) *Missing {
	if m := x.Kind(k, w, false); m != nil {
		return m
	}
	heard := x.heard(w) && (x.Past.Around.Hops == 0 || x.Past.Around.Has(of))
	doubtful := x.Counts.Incomplete
	if heard {
		doubtful = x.Counts.Missed
	}
	missing := x.unwritten()
	if !heard || x.archived() {
		missing = missing.Add(x.Roster())
	}
	if doubtful > 0 {
		missing = missing.Add(&Missing{Accounts: doubtful, Reason: fmt.Sprintf("records of %s may be missing, older ones or some of their changes, until skein has fetched their repos (getStats counts them)", counted(int(doubtful), "account"))})
	}
	return missing
}

// An Account is what is known of an account.
type Account struct {
	DID    string
	Known  bool // it has a state
	State  graph.RepoState
	Queued *graph.Resync // its row in the queue of repos to fetch; nil: none

	Unwritten bool // no living writer indexes it
}

// Own returns what is missing of an account's own records of a kind, within a window.
func (x *Index) Own(a *Account, k kinds.Kind, w language.Window) *Missing {
	hidden := a.State.Has(graph.FlagHidden)
	asked := !a.State.Has(graph.FlagResync) || a.Queued != nil && a.Queued.State == graph.ResyncInactive           // its host says that it is inactive
	if hidden && asked && !x.Holes.Uncompared() && !a.Unwritten && (a.State.AccountSource != 0 || !x.archived()) { // its sets are empty
		return nil
	}
	if m := x.Kind(k, w, true); m != nil {
		m.Accounts = 1
		return m
	}
	if x.Account(a) == Complete || x.Past.Around.Hops == 0 && x.heard(w) && !hidden && !a.State.Missed() && !a.Unwritten {
		return nil
	}
	return &Missing{Accounts: 1, Reason: x.explain(a)}
}

// The states of an account's own records.
const (
	Complete       = "complete"       // all of them are indexed
	Unknown        = "unknown"        // none are known
	Desynchronized = "desynchronized" // events were missed
	Partial        = "partial"        // older ones are missing
	Queued         = "queued"         // its repo is about to be fetched, because it may have changed
	Unwritten      = "unwritten"      // no living writer indexes the account's part of the network
	Unverified     = "unverified"     // it was not compared with the relay's list since events were lost, or since an archive was read
)

// Account returns the state of an account's own records.
func (x *Index) Account(a *Account) string {
	st := &a.State
	bare := !a.Known || st.Flags&(graph.FlagHasRev|graph.FlagDesync|graph.FlagPartial|graph.FlagResync|graph.FlagReturned) == 0
	switch {
	case a.Unwritten:
		return Unwritten
	case bare && x.Roster() == nil: // it is not in the network, or has not written anything since it is there
		return Complete
	case bare:
		return Unknown
	case st.Has(graph.FlagDesync):
		return Desynchronized
	case st.Has(graph.FlagPartial):
		return Partial
	case !st.Complete():
		return Queued
	case x.Holes.Uncompared(), x.archived() && st.Has(graph.FlagNoRoot):
		return Unverified
	}
	return Complete
}

// Description returns a sentence about a state.
func Description(state string) string { return descriptions[state].description }

var descriptions = map[string]struct{ description, reason string }{
	Complete:       {description: "The full history of this account's own records is indexed."},
	Unknown:        {"The index has no records of this account.", "the index has no records of %s, and does not know whether there are any"},
	Desynchronized: {"The index missed some of this account's events.", "the index missed some events of %s and has not refetched its repo yet"},
	Partial:        {"Records from before the index first saw this account are missing.", "records of %s from before the index first saw it are missing"},
	Queued:         {"The repo may have changed; skein will refetch it.", "the repo of %s may have changed; skein will refetch it"},
	Unwritten:      {"Nothing of this account is indexed at present, because a writer of the index has stopped.", "%s is not indexed at present, because a writer of the index has stopped"},
	Unverified:     {"skein has not compared this account with the relay's list since events were lost, or since it read an archive.", "skein has not compared the repo of %s with the relay's list since events were lost, or since it read an archive"},
}

// explain says what is missing of an account.
func (x *Index) explain(a *Account) string {
	if a.Queued != nil && a.Queued.State == graph.ResyncFailed {
		return fmt.Sprintf("the repo of %s may have changed and could not be fetched (%s); getAccount has the details", a.DID, a.Queued.Failure)
	}
	return fmt.Sprintf(descriptions[x.Account(a)].reason, a.DID)
}

// staleLabels is the age of a labeler's state from which it says nothing about the present: while the process that reads the
// labeler runs, the labeler shows every minute that it has sent everything, or the state is not renewed.
const staleLabels = 5 * time.Minute

// Labeler returns what is missing of a labeler's labels.
func Labeler(l graph.Labeler, now time.Time) *Missing {
	var what string
	switch {
	case !l.Missed.IsZero():
		what = fmt.Sprintf("labeler %s no longer has all of its labels: some from before %s are missing", l.DID, l.Missed.Format(time.RFC3339))
	case l.Problem == graph.LabelerRemoved:
		what = fmt.Sprintf("this server no longer reads labeler %s (operators: --labelers); new labels may be missing", l.DID)
	case l.Problem != "": // it may name addresses that are nobody's business
		what = fmt.Sprintf("skein cannot read labeler %s at present; new labels may be missing (operators: see the log)", l.DID)
	case l.Current && now.Sub(l.Seen) > staleLabels:
		what = fmt.Sprintf("skein last read labeler %s at %s; new labels may be missing", l.DID, l.Seen.Format(time.RFC3339))
	case !l.Current:
		what = fmt.Sprintf("skein may not have read all labels of %s yet", l.DID)
	default:
		return nil
	}
	return &Missing{Labelers: 1, Reason: what}
}

// A Proof names what a complete answer rests on.
type Proof struct {
	Since    string   `json:"since,omitempty"`   // since when the stream has had no hole; "" if all events are older
	Through  string   `json:"through,omitempty"` // the time of the newest event
	Sources  []string `json:"sources"`           // what was read
	Accounts any      `json:"accounts"`          // how many accounts it depends on, or "everybody"
	Oldest   string   `json:"oldest,omitempty"`  // the time of the oldest evidence: of the list of all accounts, or of the rev of one of the accounts
}
