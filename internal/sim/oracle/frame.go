package oracle

import (
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

func recordOf(k kinds.Info, o Op) []byte {
	if k.Kind == kinds.ListMember {
		return synth.ListItem(o.Subject, o.List, "2026-01-01T00:00:00Z")
	}
	return synth.Record(k, o.Subject)
}

// Frame encodes the message of an event.
func Frame(e *Event) []byte {
	did, at := []byte(e.DID), []byte(synth.Time(e.Seq))
	switch e.Type {
	case IdentityEvent:
		return synth.AppendIdentity(nil, did, e.Seq, at)
	case AccountEvent:
		status := ""
		if e.Deleted {
			status = "deleted"
		} else if !e.Active {
			status = "takendown"
		}
		return synth.AppendAccount(nil, did, e.Seq, at, e.Active, status)
	case SyncEvent:
		b := synth.CommitBlock(e.DID, e.Rev, e.Data)
		return synth.AppendSync(nil, did, []byte(e.Rev), e.Seq, at, synth.CAR(b.CID, b))
	default:
		return commit(e)
	}
}

func commit(e *Event) []byte {
	root := synth.CommitBlock(e.DID, e.Rev, e.Data)
	m := synth.Commit{
		Repo: []byte(e.DID), Rev: []byte(e.Rev), Since: []byte(e.Since), Seq: e.Seq, Time: []byte(synth.Time(e.Seq)),
		Root: root.CID, TooBig: e.TooBig, PrevData: (*synth.Link)(e.PrevData),
	}
	var blocks []synth.Block
	for i, o := range e.Ops {
		k := kinds.ByName(o.Kind)
		op := synth.Op{Action: "delete", Collection: k.Collection, Rkey: []byte(o.Rkey)}
		if !o.Delete {
			b := synth.NewBlock(recordOf(*k, o))
			blocks = append(blocks, b)
			op.Action, op.CID = []string{"create", "update"}[i%2], &b.CID
		}
		m.Ops = append(m.Ops, op)
	}
	car := synth.CAR(root.CID, append(blocks, root)...)
	if e.Damaged {
		car = car[:len(car)-5]
	}
	m.CAR = [][]byte{car}
	message, _ := m.Append(nil)
	return message
}
