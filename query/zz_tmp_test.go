package query_test

import (
	"fmt"
	"net/url"
	"testing"

	"skein/internal/model"
)

func TestZZPin(t *testing.T) {
	w := newWorld(t, 3, 300)
	x := fmt.Sprintf("did:plc:%024d", 1)
	y := fmt.Sprintf("did:plc:%024d", 2)
	for _, set := range []string{
		"members(" + y + "," + x + "," + x + ")",
		"union(followers(" + x + "),members(" + y + "," + x + "))",
	} {
		i := 0
		_ = i
		members, totals := w.all(set, 1, func() {
			i++
			e := &model.Event{Type: model.Commit, Seq: 1_000_000 + int64(w.n), DID: "did:plc:follower", Rev: model.TID(1<<55 + uint64(w.n)),
				Ops: []model.Op{{Kind: "block", Rkey: fmt.Sprint("r", w.n), Subject: x}}}
			w.n++
			w.happen(e)
		})
		t.Log(set, members, totals)
		x = fmt.Sprintf("did:plc:%024d", 3)
		y = fmt.Sprintf("did:plc:%024d", 4)
	}
	_ = url.Values{}
}
