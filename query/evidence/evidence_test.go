package evidence_test

import (
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
)

const (
	likes   = kinds.Like
	follows = kinds.Kind(1)
)

// noon is since when the stream has had no hole.
var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// from returns the window from a time after noon on.
func from(after time.Duration) language.Window {
	return language.Window{From: noon.Add(after).UnixMicro(), To: noon.Add(after + time.Hour).UnixMicro()}
}

// index returns an index that has everything, changed.
func index(changes ...func(x *evidence.Index)) *evidence.Index {
	x := &evidence.Index{
		Known: ask.Known{
			Holes:  format.Holes{Unbroken: noon},
			Past:   format.Backfill{Roster: graph.Roster{AsOf: noon, Source: format.RosterRepos}},
			Counts: format.AccountCounts{Accounts: 100},
		},
		Source: func(k kinds.Kind) string { return kinds.BuiltIn.Info(k).Name },
	}
	for _, change := range changes {
		change(x)
	}
	return x
}

func unread(x *evidence.Index)  { x.Past.Roster = graph.Roster{} }
func hole(x *evidence.Index)    { x.Holes.Noted++ }
func healed(x *evidence.Index)  { x.Holes.Noted, x.Holes.Compared = 1, 1 }
func live(x *evidence.Index)    { unread(x); x.Counts.Partial, x.Counts.Incomplete = 7, 7 }
func missed(x *evidence.Index)  { x.Counts.Incomplete, x.Counts.Missed = 2, 2 }
func lacking(x *evidence.Index) { x.Lacking = map[kinds.Kind]time.Time{likes: noon.Add(time.Minute)} }

func stopped(x *evidence.Index) { // the writer of partition 1 of 4
	x.Unwritten = ask.Unwritten{Parts: 2, Settings: dict.Settings{ShardBits: 8, Partitions: 4}}
}

func swept(x *evidence.Index) {
	part(x)
	x.Added = map[kinds.Kind]time.Time{likes: noon.Add(2 * time.Minute)}
}

func part(x *evidence.Index) {
	unread(x)
	x.Past.Around = graph.Around{Centers: []string{"did:web:a.example.com"}, Hops: 1, Members: 9, Since: noon.Add(time.Minute)}
}

// check compares what is missing with numbers and a part of the reason, "" for nothing.
func check(t *testing.T, what string, got *evidence.Missing, accounts int64, roster, labelers int, reason string) {
	t.Helper()
	want := evidence.Missing{Accounts: accounts, Roster: roster, Labelers: labelers}
	if got == nil {
		got = &evidence.Missing{}
	}
	want.Reason = got.Reason
	if *got != want || !strings.Contains(got.Reason, reason) || (got.Reason == "") != (reason == "") || strings.HasSuffix(got.Reason, ".") {
		t.Errorf("%s: %+v, want %+v because of %q", what, *got, want, reason)
	}
}

// Everybody's records are there if all accounts are known, and all of them are whole; those since a time, if the stream has
// been heard since, and nobody's events were missed.
func TestEverybody(t *testing.T) {
	for what, c := range map[string]struct {
		x                *evidence.Index
		of               string
		w                language.Window
		accounts, roster int
		reason           string
	}{
		"everything":                        {x: index()},
		"nothing indexed":                   {x: index(unread, func(x *evidence.Index) { x.Counts.Accounts = 0 }), roster: 1, reason: "nothing is indexed yet"},
		"no list":                           {x: index(unread), roster: 1, reason: "skein has not read a list"},
		"no list, in a window":              {x: index(live), w: from(0)},
		"no list, in a window before":       {x: index(live), w: from(-time.Second), accounts: 7, roster: 1, reason: "has not read a list"},
		"in a window without a beginning":   {x: index(live), w: language.Window{From: -1 << 63, To: noon.UnixMicro()}, accounts: 7, roster: 1, reason: "has not read a list"},
		"in a window, never heard":          {x: index(unread, func(x *evidence.Index) { x.Holes.Unbroken = time.Time{} }), w: from(time.Hour), roster: 1, reason: "has not read a list"},
		"in a window, by our clock":         {x: index(unread, func(x *evidence.Index) { x.Holes.Untimed = true }), w: from(time.Hour), roster: 1, reason: "has not read a list"},
		"an archive is read":                {x: index(unread, func(x *evidence.Index) { x.Past.Archive = "https://a" }), roster: 1, reason: "is reading the archive"},
		"lists are read":                    {x: index(unread, func(x *evidence.Index) { x.Past.Hosts = map[string]format.HostBackfill{"h": {}} }), roster: 1, reason: "is reading the lists"},
		"lists are read again":              {x: index(func(x *evidence.Index) { x.Past.Hosts = map[string]format.HostBackfill{"h": {}} })},
		"unlisted hosts":                    {x: index(func(x *evidence.Index) { x.Past.Roster.Unlisted = []string{"a", "b", "c", "d"} }), roster: 4, reason: "4 hosts may be unknown, because skein could not read all lists: a, b, c, … (operators"},
		"unlisted hosts, in a window":       {x: index(func(x *evidence.Index) { x.Past.Roster.Unlisted = []string{"a"} }), w: from(0)},
		"the stream from its first event":   {x: index(func(x *evidence.Index) { x.Past.Roster.Source = format.RosterStream })},
		"the stream, refuted":               {x: index(func(x *evidence.Index) { x.Past.Roster.Source, x.Counts.Partial = format.RosterStream, 1 }), roster: 1, reason: "has not read a list"},
		"other rosters are not refuted":     {x: index(func(x *evidence.Index) { x.Counts.Partial = 1 })},
		"a hole":                            {x: index(hole), roster: 1, reason: "some events were lost"},
		"a hole, in a window":               {x: index(hole), w: from(time.Hour), roster: 1, reason: "some events were lost"},
		"a hole that was compared":          {x: index(healed)},
		"accounts that miss something":      {x: index(missed), accounts: 2, reason: "records of 2 accounts may be missing"},
		"in a window":                       {x: index(missed), w: from(0), accounts: 2, reason: "records of 2 accounts"},
		"a kind that was added":             {x: index(lacking), accounts: 100, reason: "like has been indexed only since 2026-11-28T12:01:00Z"},
		"a kind that was added, before":     {x: index(lacking), w: from(time.Second), accounts: 100, reason: "like has been indexed only"},
		"a kind that was added, since":      {x: index(lacking), w: from(time.Minute)},
		"a writer has stopped":              {x: index(stopped), accounts: 25, roster: 1, reason: "25 % of the network is not indexed at present"},
		"a writer has stopped, in a window": {x: index(live, stopped), w: from(0), accounts: 25, roster: 1, reason: "25 % of the network"},
		"a writer has stopped, some missed": {x: index(missed, stopped), accounts: 25, roster: 1, reason: "25 % of the network"},
		"a part":                            {x: index(part), of: "did:web:a.example.com", roster: 1, reason: "this index has 9 accounts, a part of the network, and of all others only what they did to did:web:a.example.com since 2026-11-28T12:01:00Z"},
		"a part, a center since":            {x: index(part), of: "did:web:a.example.com", w: from(time.Minute)},
		"a part, a center's post since":     {x: index(part), of: "at://did:web:a.example.com/x/y", w: from(time.Minute)},
		"a part, before it had the center":  {x: index(part), of: "did:web:a.example.com", w: from(0), roster: 1, reason: "only what they did"},
		"a part, another since":             {x: index(part), of: "did:web:b.example.com", w: from(time.Minute), roster: 1, reason: "only what they did"},
		"a part, anything since":            {x: index(part), w: from(time.Minute), roster: 1, reason: "only what they did"},
		"a part, of a kind that was added":  {x: index(swept), of: "did:web:a.example.com", w: from(time.Minute), accounts: 100, reason: "like has been indexed only since 2026-11-28T12:02:00Z for accounts outside this part"},
		"a part, since a kind was added":    {x: index(swept), of: "did:web:a.example.com", w: from(2 * time.Minute)},
		"a part of several, after its hole": {x: index(part, hole, func(x *evidence.Index) { x.Past.Around.Centers = []string{"a", "b"} }), of: "a", w: from(time.Hour), roster: 1, reason: "they did to 2 named accounts"},
	} {
		check(t, what, c.x.Everybody(c.of, likes, c.w), int64(c.accounts), c.roster, 0, c.reason)
	}
	check(t, "another kind", index(lacking).Everybody("", follows, language.Window{}), 0, 0, 0, "")
}

// An account's own records are there if it is whole, whatever is known of others, or if its events since a time were heard.
func TestOwn(t *testing.T) {
	state := func(flags uint16) evidence.Account {
		return evidence.Account{DID: "did:web:x.example.com", Known: true, State: graph.RepoState{Flags: flags}}
	}
	const rev = graph.FlagHasRev
	unwritten := func(flags uint16) evidence.Account { a := state(flags); a.Unwritten = true; return a }
	unknown := evidence.Account{DID: "did:web:x.example.com"}
	failed := state(rev | graph.FlagResync)
	failed.Queued = &graph.Resync{State: graph.ResyncFailed, Failure: "no such host"}
	var all language.Window
	for what, c := range map[string]struct {
		x      *evidence.Index
		a      evidence.Account
		w      language.Window
		state  string
		reason string
	}{
		"whole":                            {index(live), state(rev), all, evidence.Complete, ""},
		"whole, in a part":                 {index(part), state(rev), all, evidence.Complete, ""},
		"not in the network":               {index(), unknown, all, evidence.Complete, ""},
		"without records":                  {index(), state(0), all, evidence.Complete, ""},
		"unknown":                          {index(unread), unknown, all, evidence.Unknown, "has no records of did:web:x.example.com"},
		"known by its status":              {index(unread), state(0), all, evidence.Unknown, "has no records"},
		"unknown, since":                   {index(unread), unknown, from(0), evidence.Unknown, ""},
		"unknown, since, in a part":        {index(part), unknown, from(time.Minute), evidence.Unknown, "has no records"},
		"unknown, after a hole":            {index(hole), unknown, from(0), evidence.Unknown, "has no records"},
		"of an unlisted host":              {index(func(x *evidence.Index) { x.Past.Roster.Unlisted = []string{"h"} }), unknown, all, evidence.Unknown, "has no records"},
		"partial":                          {index(), state(rev | graph.FlagPartial), all, evidence.Partial, "from before the index first saw it"},
		"partial, since":                   {index(live), state(rev | graph.FlagPartial), from(0), evidence.Partial, ""},
		"partial and queued, since":        {index(live), state(rev | graph.FlagPartial | graph.FlagResync), from(0), evidence.Partial, ""},
		"partial, since, in a part":        {index(part), state(rev | graph.FlagPartial), from(time.Minute), evidence.Partial, "from before"},
		"partial, before":                  {index(live), state(rev | graph.FlagPartial), from(-1), evidence.Partial, "from before"},
		"desynchronized":                   {index(), state(rev | graph.FlagDesync), all, evidence.Desynchronized, "missed some events"},
		"desynchronized, since":            {index(), state(rev | graph.FlagDesync), from(0), evidence.Desynchronized, "missed some events"},
		"partial, desynchronized, since":   {index(), state(rev | graph.FlagDesync | graph.FlagPartial), from(0), evidence.Desynchronized, "missed some events"},
		"queued":                           {index(), state(rev | graph.FlagResync), all, evidence.Queued, "skein will refetch it"},
		"queued, since":                    {index(), state(rev | graph.FlagResync), from(0), evidence.Queued, "skein will refetch it"},
		"listed":                           {index(), state(graph.FlagResync), all, evidence.Queued, "skein will refetch it"},
		"failed":                           {index(), failed, all, evidence.Queued, "could not be fetched (no such host)"},
		"after a hole":                     {index(hole), state(rev), all, evidence.Unverified, "the repo of did:web:x.example.com with the relay"},
		"since a hole":                     {index(hole), state(rev), from(time.Hour), evidence.Unverified, "since events were lost"},
		"after a compared hole":            {index(healed), state(rev), all, evidence.Complete, ""},
		"its writer has stopped":           {index(stopped), unwritten(rev), all, evidence.Unwritten, "did:web:x.example.com is not indexed at present"},
		"its writer has stopped, since":    {index(live, stopped), unwritten(rev), from(0), evidence.Unwritten, "not indexed at present"},
		"its writer has stopped, hidden":   {index(stopped), unwritten(rev | graph.FlagHidden), all, evidence.Unwritten, "not indexed at present"},
		"its writer has stopped, unknown":  {index(stopped), evidence.Account{DID: "did:web:x.example.com", Unwritten: true}, all, evidence.Unwritten, "not indexed"},
		"another writer has stopped":       {index(stopped), state(rev), all, evidence.Complete, ""},
		"another has stopped, since":       {index(live, stopped), state(rev | graph.FlagPartial), from(0), evidence.Partial, ""},
		"another has stopped, unknown":     {index(stopped), unknown, all, evidence.Complete, ""},
		"another has stopped, hidden":      {index(stopped), state(rev | graph.FlagHidden | graph.FlagDesync), all, evidence.Desynchronized, ""},
		"hidden":                           {index(live), state(rev | graph.FlagHidden | graph.FlagDesync), all, evidence.Desynchronized, ""},
		"hidden and queued":                {index(), state(rev | graph.FlagHidden | graph.FlagResync), all, evidence.Queued, "skein will refetch it"},
		"inactive, as its host says":       {index(), evidence.Account{Known: true, State: graph.RepoState{Flags: rev | graph.FlagHidden | graph.FlagResync}, Queued: &graph.Resync{State: graph.ResyncInactive}}, all, evidence.Queued, ""},
		"hidden, after a hole":             {index(hole), state(rev | graph.FlagHidden), all, evidence.Unverified, "since events were lost"},
		"whole, of a kind that was added":  {index(lacking), state(rev), all, evidence.Complete, "like has been indexed only since"},
		"in a part, of one that was added": {index(swept), state(rev), all, evidence.Complete, ""},
		"hidden, of a kind that was added": {index(lacking), state(rev | graph.FlagHidden), all, evidence.Complete, ""},
		"whole, since a kind was added":    {index(lacking), state(rev), from(time.Minute), evidence.Complete, ""},
	} {
		accounts := int64(0)
		if c.reason != "" {
			accounts = 1
		}
		check(t, what, c.x.Own(&c.a, likes, c.w), accounts, 0, 0, c.reason)
		if got := c.x.Account(&c.a); got != c.state || evidence.Description(got) == "" {
			t.Errorf("%s: %s, want %s", what, got, c.state)
		}
	}
	check(t, "statuses", index(live).Statuses(), 0, 0, 0, "")
	check(t, "statuses if a writer has stopped", index(stopped).Statuses(), 25, 1, 0, "25 % of the network")
	check(t, "statuses after a hole", index(hole).Statuses(), 0, 1, 0, "some events were lost")
}

// A labeler's labels are there while it shows that it has sent everything.
func TestLabelers(t *testing.T) {
	for reason, l := range map[string]graph.Labeler{
		"":                       {Current: true, Seen: noon.Add(-5 * time.Minute)},
		"at 2026-11-28T11:54:59": {Current: true, Seen: noon.Add(-5*time.Minute - time.Second)},
		"at 0001-01-01":          {Current: true},
		"may not have read all labels of did:web:m.example.com yet": {Seen: noon},
		"some from before 2026-11-28T12:00:00Z are missing":         {Current: true, Seen: noon, Missed: noon},
		"no longer reads labeler did:web:m.example.com":             {Current: true, Seen: noon, Problem: graph.LabelerRemoved},
		"cannot read labeler did:web:m.example.com at present":      {Current: true, Seen: noon, Problem: "dial https://secret"},
	} {
		l.DID = "did:web:m.example.com"
		got := evidence.Labeler(l, noon)
		labelers := 1
		if reason == "" {
			labelers = 0
		}
		check(t, reason, got, 0, 0, labelers, reason)
		if got != nil && strings.Contains(got.Reason, "secret") {
			t.Error(got.Reason)
		}
	}
}

// Two inferences miss the same accounts, as far as anybody knows, and different labelers. The first reason stays.
func TestMissing(t *testing.T) {
	var none *evidence.Missing
	a, b := &evidence.Missing{Accounts: 2, Roster: 1, Reason: "first"}, &evidence.Missing{Accounts: 3, Roster: 4, Labelers: 1, Reason: "second"}
	check(t, "both", a.Add(b), 3, 4, 1, "first")
	if none.Add(a) != a || a.Add(none) != a || none.Add(nil) != nil || a.Accounts != 2 || a.Error() != "first" {
		t.Error(none.Add(a), a.Add(none), a)
	}
	x := index(missed, lacking)
	check(t, "all records", x.All(), 100, 0, 0, "records of 2 accounts")
}

// Until an archive's rows are compared with the relay's list, or followed by a commit, they prove no account.
func TestArchiveIsUnconfirmed(t *testing.T) {
	archived := &evidence.Account{Known: true, State: graph.RepoState{Flags: format.FlagHasRev | format.FlagNoRoot}}
	followed := &evidence.Account{Known: true, State: graph.RepoState{Flags: format.FlagHasRev}}
	reading := index(func(x *evidence.Index) { x.Past.Archive = "https://archive.example.com" })
	read := index(func(x *evidence.Index) { x.Past.Roster.Unconfirmed, x.Past.Roster.Archived = true, true })
	for x, want := range map[*evidence.Index]string{index(): evidence.Complete, reading: evidence.Unverified, read: evidence.Unverified} {
		if got := x.Account(archived); got != want || x.Account(followed) != evidence.Complete {
			t.Errorf("%+v: %s and %s, want %s and complete", x.Past, got, x.Account(followed), want)
		}
	}
	check(t, "everybody", read.All(), 0, 1, 0, "has not yet compared it")
	hidden, last := &evidence.Account{State: graph.RepoState{Flags: format.FlagHidden}}, &evidence.Account{State: graph.RepoState{Flags: format.FlagHidden, AccountSource: 1}}
	for _, w := range []language.Window{{}, from(0)} {
		check(t, "hidden", reading.Own(hidden, likes, w), 1, 0, 0, "has no records of")
		check(t, "hidden by the stream", reading.Own(last, likes, w), 0, 0, 0, "")
		check(t, "everybody, in a window", reading.Everybody("", likes, w), 0, 1, 0, "which of them are active")
	}
	check(t, "statuses", reading.Statuses(), 0, 1, 0, "which of them are active")
}
