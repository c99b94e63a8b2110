package network

import "math"

// Repo returns records of indexed collections that an account has and the stream never
// brought, about mean of them, in no order. They follow from the seed and the account; the
// number is a power law.
func (n *Network) Repo(account, mean int, to []Op) []Op {
	r := n.rng(forPast, uint64(account)<<8)
	// A power law with that mean: half of the accounts have less than a fifth of it.
	u := r.float()
	count := int(float64(mean) * 0.25 / math.Sqrt(1.0005-u) * 2)
	count = min(count, 40*mean)
	const span = 400_000_000 // events in two weeks
	for range count {
		e := Event{Account: int32(account)}
		switch share := r.below(1000); {
		case share < 700:
			e.Kind = Like
		case share < 870:
			e.Kind = Follow
		case share < 980:
			e.Kind = Repost
		default:
			e.Kind = Block
		}
		i := span/2 + int64(r.next()%(span/2))
		n.subject(&r, i, &e)
		to = append(to, Op{Kind: e.Kind, TID: n.tid(account, n.micros(i)+uint64(r.below(1_000_000))), Subject: e.Subject, SubjectTID: e.SubjectTID})
	}
	return to
}
