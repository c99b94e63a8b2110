package graph

import (
	"encoding/json"
	"fmt"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
)

// A store that was there before a kind was added lacks what was made of it until then, of
// every account, whatever else is known of it. That ends when the repos of all hosts have been
// listed since, and none waits to be fetched any more.

// Lacking returns the kinds of which something is lacking so, and since when they are
// indexed; nil if there are none.
func (s *Snapshot) Lacking() (map[kinds.Kind]time.Time, error) {
	added := s.s.lacking.Load()
	if added == nil || len(*added) == 0 {
		return nil, nil
	}
	lacking := map[kinds.Kind]time.Time{}
	var listed time.Time // since when all writers have listed all repos
	end := uint8(0)      // up to which partition that is known
	err := kv.ScanPrefix(s.r, format.KeyBackfill, func(k, v []byte) error {
		b, err := format.DecodeBackfill(v)
		first := uint8(0)
		if s.s.layout.Shared() {
			first = k[len(k)-1]
		}
		if first == 0 || b.ReposFrom.Before(listed) {
			listed = b.ReposFrom
		}
		if first <= end {
			end = max(end, b.End)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if end < s.s.layout.Settings.Partitions {
		listed = time.Time{} // a writer has listed none
	}
	waiting := false
	if !listed.IsZero() {
		err = s.r.Scan([]byte{format.KeyResync}, []byte{format.KeyResync + 1}, false, func(_, _ []byte) (bool, error) {
			waiting = true
			return false, nil
		})
	}
	for name, at := range *added {
		if k := s.s.Kinds().ByName(name); k != nil && (waiting || !listed.After(at)) {
			lacking[k.Kind] = at
		}
	}
	return lacking, err
}

// readLacking reads what a store lacks, by the names of kinds.
func readLacking(r kv.Reader) (map[string]time.Time, error) {
	v, ok, err := r.Get(format.KeyLacking)
	if err != nil || !ok {
		return nil, err
	}
	var lacking map[string]time.Time
	if err := json.Unmarshal(v, &lacking); err != nil {
		return nil, fmt.Errorf("graph: reading of which kinds something is lacking: %w", err)
	}
	return lacking, nil
}

func setLacking(tx kv.Txn, lacking map[string]time.Time) error {
	if len(lacking) == 0 {
		return nil
	}
	v, err := json.Marshal(lacking)
	if err == nil {
		tx.Set(format.KeyLacking, v)
	}
	return err
}
