package ask

import (
	"iter"

	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// On a cluster every read takes a round trip. A loop that reads one set after another should begin the
// reads of its next steps early: Ahead does that with the Begin methods, and each of these says for which
// methods it begins the reads. They do nothing on an engine whose reads are local.

// Ahead yields what seq yields, and calls begin for the elements that come next. begin may only call the
// Begin methods of the view.
func Ahead[T any](s *View, seq iter.Seq[T], begin func(T)) iter.Seq[T] {
	return ahead(&s.state, seq, begin)
}

func ahead[T any](s *state, seq iter.Seq[T], begin func(T)) iter.Seq[T] {
	return kv.AheadOf(s.r, seq, func(_ kv.Prefetcher, x T) { begin(x) })
}

// BeginSubjects begins the read of Subjects, AppendSubjects, EachSubject and NewestTo.
func (s *state) BeginSubjects(k kinds.Kind, actor dict.ID) {
	if !s.IsHidden(actor) {
		s.BeginRecords(k, actor)
	}
}

// BeginRecords begins the read of Records and of JoinedAmong, whose first kind is k.
func (s *state) BeginRecords(k kinds.Kind, actor dict.ID) {
	if p, ok := kv.Ahead(s.r); ok && actor != dict.None {
		read.Begin(p, k, actor)
	}
}

// BeginAccount begins the read of AccountAndQueue.
func (s *state) BeginAccount(id dict.ID) {
	if p, ok := kv.Ahead(s.r); ok && id != dict.None && !s.IsHidden(id) {
		p.PrefetchGet(s.source.Layout.AccountKey(nil, id))
	}
}

// BeginStrings begins the first read of Strings and of Authors.
func (s *state) BeginStrings(ns dict.Namespace, ids ...dict.ID) {
	p, ok := kv.Ahead(s.r)
	for i := 0; ok && i < len(ids); i++ {
		p.PrefetchGet(dict.AppendGroupKey(nil, ns, ids[i]))
	}
}

// BeginActors begins the read of Actors.
func (s *state) BeginActors(k kinds.Kind, subject dict.ID) {
	if p, ok := kv.Ahead(s.r); ok && subject != dict.None {
		read.BeginSet(p, s.source.Layout, k, subject)
	}
}

// BeginEdge begins the first read of HasEdge, and the second of a set that is known to have leaves.
func (s *state) BeginEdge(k kinds.Kind, actor, subject dict.ID, w Window) {
	p, ok := kv.Ahead(s.r)
	switch {
	case !ok || actor == dict.None || subject == dict.None:
	case w.All() && !k.IsSelf():
		p.PrefetchGet(s.source.Layout.AppendMemberKey(nil, k, subject, actor))
		if s.source.sets.hasLeaves(k, subject, false) {
			read.BeginLeaf(s.r, s.source.Layout, k, actor, subject)
		}
	default:
		s.BeginRecords(k, actor)
	}
}
