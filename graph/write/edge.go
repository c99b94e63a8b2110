package write

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// edge identifies an edge that some record starts or stops naming.
type edge struct {
	kind kinds.Kind
	// lone says that no record names a removed edge any more. It does not identify the edge.
	lone bool
	// date is that of the record that starts naming it: format.Undated if several do. It does not identify the edge.
	date uint32

	// tid is that of a removed edge's record, or of one of them; 0 if its key is not a TID. It does not identify
	// the edge.
	tid uint64

	actor   dict.ID
	subject dict.ID
}

func compareEdges(x, y edge) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.actor, y.actor), cmp.Compare(x.subject, y.subject))
}

func sameActor(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }

// A search may read wideSearch times as much as others if the last such search of the account was searchEvery ago: large
// accounts of ordinary people seldom need one, and fetching their repos costs more.
const wideSearch, searchEvery = 32, 10 * time.Minute

// searches bound what a write reads of an account's records, of all kinds together, to find the other records of edges.
type searches struct {
	most   int                   // bytes
	wide   map[dict.ID]time.Time // when more was last read
	mu     sync.Mutex            // guards meters
	meters map[dict.ID]*meter    // of this attempt
}

// meter is what was read of an account's records, and the most that may be.
type meter struct {
	read atomic.Int64
	most int64
}

// count adds what was read. It ends the read, with ErrFar, once that is too much.
func (m *meter) count(_ bool, k, v []byte) error {
	if m.read.Add(int64(len(k)+len(v))) > m.most {
		return ErrFar
	}
	return nil
}

// reader returns r for the records of an account.
func (s *searches) reader(r kv.Reader, actor dict.ID) kv.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.meters[actor]
	if m == nil {
		m = &meter{most: int64(s.most)}
		if time.Since(s.wide[actor]) >= searchEvery {
			m.most *= wideSearch
		}
		s.meters[actor] = m
	}
	return read.Charged(r, m.count)
}

// committed notes the accounts for which much was read.
func (s *searches) committed() {
	for id, m := range s.meters {
		if m.read.Load() > int64(s.most) {
			s.wide[id] = time.Now()
		}
	}
	if len(s.wide) > 10_000 {
		maps.DeleteFunc(s.wide, func(_ dict.ID, at time.Time) bool { return time.Since(at) >= searchEvery })
	}
}
